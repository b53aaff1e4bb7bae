"""Where server and backend are looked for."""

import sys
import types
from pathlib import Path

import pytest

from tools.lib import installation
from tools.lib.errors import ToolError
from tools.lib.paths import runfile


@pytest.fixture(name="_built")
def fixture_built(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("tools.installed")
    module.TRITONSERVER = "server+/bin/tritonserver"
    module.BACKENDS = "main/backend/backends"
    monkeypatch.setitem(sys.modules, "tools.installed", module)


@pytest.mark.usefixtures("_built")
def test_what_the_build_made() -> None:
    assert installation.tritonserver(None) == runfile("server+/bin/tritonserver")
    assert installation.backend_directory(None) == runfile("main/backend/backends")


@pytest.mark.usefixtures("_built")
def test_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", "/here")
    assert installation.tritonserver("bin/server") == Path("/here/bin/server")
    assert installation.backend_directory("/opt/backends") == Path("/opt/backends")


def test_a_plain_checkout_needs_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tools.installed", None)
    with pytest.raises(ToolError, match="--tritonserver"):
        installation.tritonserver(None)
    with pytest.raises(ToolError, match="--backend_directory"):
        installation.backend_directory(None)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
