import math
import sys

import pytest

from tools.lib.errors import ToolError
from tools.lib.model_shapes import FLAN_T5_XL, T5_1_5B, T5_SMALL, shape
from tools.lib.random_weights import EMBEDDING_NAME, tensor_shapes


def parameters(config, embedding):
    shapes = tensor_shapes(config)
    return sum(math.prod(shapes[name]) for name in shapes if embedding or name != EMBEDDING_NAME)


# As published: google-t5/t5-small and google/flan-t5-xl on the Hugging Face hub.
@pytest.mark.parametrize(("config", "count"), [(T5_SMALL, 60_506_624), (FLAN_T5_XL, 2_849_757_184)])
def test_parameters_of_published_models(config, count):
    assert parameters(config, embedding=True) == count


def test_parameters_without_the_embedding():
    assert parameters(T5_1_5B, embedding=False) == 1_521_738_240
    assert parameters(T5_1_5B, embedding=True) == 1_521_738_240 + 32128 * 1536


def test_names():
    assert shape("t5_1_5b") is T5_1_5B
    with pytest.raises(ToolError, match="t5_huge"):
        shape("t5_huge")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
