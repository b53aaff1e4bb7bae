"""Makes the harness's fixtures known to every test file of this folder."""

from tests.harness.fixtures import module_folder, report_server_log

__all__ = ["module_folder", "report_server_log"]
