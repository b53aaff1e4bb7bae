"""What a server says of itself."""

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tools.lib.errors import ToolError

_SECONDS = 30.0


def server_facts(address: str, model: str) -> dict[str, str]:
    """Name and version of the server, as JSON values.

    ToolError if nobody answers at `address` (host:port of gRPC), or not with `model`.
    """
    with grpc.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            about = stub.ServerMetadata(service_pb2.ServerMetadataRequest(), timeout=_SECONDS)
            ready = stub.ModelReady(
                service_pb2.ModelReadyRequest(name=model), timeout=_SECONDS
            ).ready
        except grpc.RpcError as error:
            raise ToolError(f"{address}: {error.code().name}: {error.details()}") from error
    if not ready:
        raise ToolError(f"{address}: model {model!r} is not ready there")
    return {"name": about.name, "version": about.version}
