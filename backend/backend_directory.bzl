"""The layout in which a Triton server finds a backend."""

def _backend_directory_impl(ctx):
    directory = ctx.actions.declare_directory(ctx.label.name)
    files = [ctx.file.library] + ctx.files.beside
    arguments = ctx.actions.args()
    arguments.add(directory.path)
    arguments.add_all(files)
    ctx.actions.run_shell(
        outputs = [directory],
        inputs = files,
        command = 'mkdir "$1/seq2seq" && cp -L "${@:2}" "$1/seq2seq/"',
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

It holds seq2seq/libtriton_seq2seq.so, and beside that the libraries that it loads from its own folder.""",
    attrs = {
        "beside": attr.label_list(
            doc = "Shared libraries that the backend loads from its own folder.",
            allow_files = True,
        ),
        "library": attr.label(
            doc = "libtriton_seq2seq.so.",
            allow_single_file = [".so"],
            mandatory = True,
        ),
    },
)
