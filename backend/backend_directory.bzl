"""The layout in which a Triton server finds a backend."""

def _backend_directory_impl(ctx):
    directory = ctx.actions.declare_directory(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.add(directory.path)
    arguments.add(ctx.file.library)
    ctx.actions.run_shell(
        outputs = [directory],
        inputs = [ctx.file.library],
        command = 'mkdir "$1/seq2seq" && cp -L "$2" "$1/seq2seq/"',
        arguments = [arguments],
        mnemonic = "BackendDirectory",
        progress_message = "Laying out %{output}",
    )
    return [DefaultInfo(
        files = depset([directory]),
        runfiles = ctx.runfiles([directory]),
    )]

backend_directory = rule(
    implementation = _backend_directory_impl,
    doc = """A folder for the server's flag --backend-directory.

It holds seq2seq/libtriton_seq2seq.so.""",
    attrs = {
        "library": attr.label(
            doc = "libtriton_seq2seq.so.",
            allow_single_file = [".so"],
            mandatory = True,
        ),
    },
)
