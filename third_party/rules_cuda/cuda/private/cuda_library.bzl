"""cuda_library: nvcc over each source, the objects in an archive that cc rules link."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load(":archs.bzl", "gencode_flags")

_TOOLCHAIN = Label("//cuda:toolchain_type")
_SOURCES = [".cu", ".cu.cc", ".cu.cpp"]
_HEADERS = [".cuh", ".h", ".hpp", ".inc", ".inl"]

def _modes(ctx):
    if ctx.var["COMPILATION_MODE"] == "dbg":
        return ["-O0", "-g", "-G"]
    return ["-O3", "-DNDEBUG"] if ctx.var["COMPILATION_MODE"] == "opt" else ["-O1"]

def _host_flags(flags):
    return ["-Xcompiler=" + flag for flag in flags]

def _include_flags(context):
    flags = ["-I" + path for path in context.quote_includes.to_list() + context.includes.to_list()]
    return flags + ["-isystem=" + path for path in context.system_includes.to_list() + context.external_includes.to_list()]

def _own_includes(ctx):
    folder = "/".join([part for part in [ctx.label.workspace_root, ctx.label.package] if part])
    found = []
    for include in ctx.attr.includes:
        path = "/".join([part for part in [folder, include if include != "." else ""] if part])
        found += [path or ".", ctx.bin_dir.path + "/" + path]
    return found

def _compile(ctx, source, context, cc_toolchain, features):
    """Declares the compilation of one source; returns the object."""
    toolchain = ctx.toolchains[_TOOLCHAIN]
    out = ctx.actions.declare_file("_objs/%s/%s.pic.o" % (ctx.label.name, source.basename))
    host_compiler = cc_common.get_tool_for_action(feature_configuration = features, action_name = "c++-compile")
    archs = ";".join(ctx.attr.archs) or ctx.attr._archs[BuildSettingInfo].value
    args = ctx.actions.args()
    args.add_all(["-x", "cu", "-ccbin", host_compiler])
    args.add_all(gencode_flags(archs) + _modes(ctx) + _host_flags(["-fPIC"]))
    args.add_all(_include_flags(context))
    args.add_all(ctx.attr.defines + ctx.attr.local_defines, format_each = "-D%s")
    args.add_all(_host_flags(["-D" + define for define in context.defines.to_list() + ctx.attr.host_local_defines]))
    args.add_all(["-Xptxas=" + flag for flag in ctx.attr.ptxasopts])
    args.add_all(ctx.attr._copts[BuildSettingInfo].value + ctx.attr.copts)
    args.add_all(_host_flags(ctx.attr._host_copts[BuildSettingInfo].value + ctx.attr.host_copts))
    args.add("-c", source)
    args.add("-o", out)
    ctx.actions.run(
        arguments = [args],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        executable = toolchain.nvcc,
        inputs = depset([source], transitive = [context.headers, toolchain.files, cc_toolchain.all_files]),
        mnemonic = "CudaCompile",
        outputs = [out],
        progress_message = "Compiling %{input}",
    )
    return out

def _cuda_library_impl(ctx):
    if ctx.attr.rdc:
        fail("rdc is not supported by this stand-in for rules_cuda")
    cc_toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    sources = [file for file in ctx.files.srcs if file.extension not in ["cuh", "h", "hpp", "inc", "inl"]]
    headers = [file for file in ctx.files.srcs if file not in sources] + ctx.files.hdrs
    root = ctx.label.workspace_root
    own = cc_common.create_compilation_context(
        defines = depset(ctx.attr.host_defines),
        headers = depset(headers),
        includes = depset(_own_includes(ctx)),
        quote_includes = depset([root or ".", ctx.bin_dir.path + ("/" + root if root else "")]),
    )
    dependencies = [dep[CcInfo] for dep in ctx.attr.deps + [ctx.attr._runtime]]
    context = cc_common.merge_compilation_contexts(
        compilation_contexts = [own] + [info.compilation_context for info in dependencies],
    )
    objects = [_compile(ctx, source, context, cc_toolchain, features) for source in sources]
    linking, outputs = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name,
        actions = ctx.actions,
        alwayslink = ctx.attr.alwayslink,
        cc_toolchain = cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            # Position independent code serves both kinds of linking, and nvcc is slow.
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        disallow_dynamic_library = True,
        feature_configuration = features,
        linking_contexts = [info.linking_context for info in dependencies],
        user_link_flags = ctx.attr.host_linkopts,
    )
    library = outputs.library_to_link
    return [
        DefaultInfo(files = depset([library.pic_static_library] if library else [])),
        CcInfo(compilation_context = context, linking_context = linking),
    ]

cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "alwayslink": attr.bool(),
        "archs": attr.string_list(),
        "copts": attr.string_list(),
        "defines": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = _HEADERS),
        "host_copts": attr.string_list(),
        "host_defines": attr.string_list(),
        "host_linkopts": attr.string_list(),
        "host_local_defines": attr.string_list(),
        "includes": attr.string_list(),
        "linkopts": attr.string_list(),
        "local_defines": attr.string_list(),
        "ptxasopts": attr.string_list(),
        "rdc": attr.bool(),
        "srcs": attr.label_list(allow_files = _SOURCES + _HEADERS),
        "_archs": attr.label(default = "//cuda:archs"),
        "_copts": attr.label(default = "//cuda:copts"),
        "_host_copts": attr.label(default = "//cuda:host_copts"),
        "_runtime": attr.label(default = "//cuda:runtime"),
    },
    fragments = ["cpp"],
    toolchains = use_cc_toolchain() + [_TOOLCHAIN],
)
