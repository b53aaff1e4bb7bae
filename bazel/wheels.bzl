"""Repositories unpacked from wheels that third_party/wheels.lock pins by hash.

pip does the download, from whatever index the machine uses:

    wheels = use_extension("//bazel:wheels.bzl", "wheels")
    wheels.unpack(name = "openblas", distribution = "scipy-openblas32", build_file = "//third_party:openblas.BUILD.bazel")
    use_repo(wheels, "openblas")
"""

def _wheel_repository_impl(ctx):
    # Files are read through labels, so that a changed lock or build file fetches again.
    lock = ctx.path(ctx.attr.lock)
    tool = ctx.path(ctx.attr._unpack)
    build_file = ctx.path(ctx.attr.build_file)
    python = ctx.which("python3.11") or ctx.which("python3")
    if not python:
        fail("python3 is not on PATH; it is needed, with pip, to fetch %s" % ctx.attr.distribution)
    ctx.report_progress("fetching the wheel %s" % ctx.attr.distribution)
    result = ctx.execute(
        [python, "-B", tool, lock, ctx.attr.distribution, "."] + ctx.attr.prefixes,
        timeout = 900,
    )
    if result.return_code:
        fail("cannot unpack the wheel %s: %s" % (ctx.attr.distribution, result.stderr))
    ctx.symlink(build_file, "BUILD.bazel")

wheel_repository = repository_rule(
    doc = "The files of one wheel, with a build file of ours.",
    implementation = _wheel_repository_impl,
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "distribution": attr.string(mandatory = True, doc = "The wheel's name in the lock."),
        "lock": attr.label(mandatory = True, allow_single_file = True),
        "prefixes": attr.string_list(doc = "Unpack only what is under these; all, if empty."),
        "_unpack": attr.label(default = "//bazel:unpack_wheel.py", allow_single_file = True),
    },
)

def _wheels_impl(ctx):
    for module in ctx.modules:
        for tag in module.tags.unpack:
            wheel_repository(
                name = tag.name,
                build_file = tag.build_file,
                distribution = tag.distribution,
                lock = tag.lock,
                prefixes = tag.prefixes,
            )

wheels = module_extension(
    implementation = _wheels_impl,
    tag_classes = {
        "unpack": tag_class(attrs = {
            "build_file": attr.label(mandatory = True),
            "distribution": attr.string(mandatory = True),
            "lock": attr.label(default = "//third_party:wheels.lock"),
            "name": attr.string(mandatory = True),
            "prefixes": attr.string_list(),
        }),
    },
)
