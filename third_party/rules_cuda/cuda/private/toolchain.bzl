"""The toolchain: one nvcc and the files beside it."""

def _cuda_toolchain_impl(ctx):
    return [platform_common.ToolchainInfo(
        files = depset(ctx.files.files),
        nvcc = ctx.file.nvcc,
    )]

cuda_toolchain = rule(
    implementation = _cuda_toolchain_impl,
    attrs = {
        "files": attr.label_list(allow_files = True),
        "nvcc": attr.label(mandatory = True, allow_single_file = True),
    },
)
