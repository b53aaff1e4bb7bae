"""Makes the harness's fixtures known to every test file of this folder."""

from tests.harness.fixtures import device, module_folder, report_server_log

__all__ = ["device", "module_folder", "report_server_log"]
