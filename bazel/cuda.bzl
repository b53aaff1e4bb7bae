"""CUDA targets that build the same bits anywhere, and step aside where CUDA is off."""

load("@rules_cuda//cuda:defs.bzl", "cuda_library", "requires_cuda")

def if_cuda(then, otherwise = []):
    """A select for attributes that gain something when CUDA is on.

    Args:
        then: the value where CUDA is on
        otherwise: the value under --config=cpu

    Returns:
        A select.
    """
    return select({
        "@rules_cuda//cuda:is_enabled": then,
        "//conditions:default": otherwise,
    })

def cuda_kernel_library(name, src, hdrs, deps = [], copts = [], **kwargs):
    """One .cu with its launcher's header, compiled by nvcc as C++20.

    One source a target, because the path that goes into symbol names is given per target: by default nvcc
    hashes the absolute path of the source and the names of its temporary files into the object.

    Args:
        name: the target
        src: the .cu file, in this package
        hdrs: its headers, free of device code, so that cc_library targets may include them
        deps: cc_library or cuda_kernel_library targets
        copts: more flags for nvcc
        **kwargs: passed to cuda_library
    """
    path = "%s/%s" % (native.package_name(), src)
    cuda_library(
        name = name,
        srcs = [src],
        hdrs = hdrs,
        copts = [
            "-std=c++20",
            "--objdir-as-tempdir",
            "-Xcudafe=--orig_src_path_name",
            "-Xcudafe=" + path,
            "-Werror=all-warnings",
        ] + copts,
        host_copts = [
            "-Wall",
            "-Wextra",
            "-fvisibility=hidden",
        ],
        target_compatible_with = requires_cuda(),
        deps = deps,
        **kwargs
    )
