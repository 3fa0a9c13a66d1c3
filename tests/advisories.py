"""The security table: what hit products of this kind, each row with its tests, or the part that will bring them.

A key of `ADVISORIES` is how a row begins, and of `OWED` a phrase of the text below the table. A value is a list of node
ids of tests and of `PARTS`."""

PARTS = ("state", "journal", "runtime", "mcp", "release")

_SECURITY = "tests/gateway/test_security.py::"
_HOSTS = _SECURITY + "test_a_client_never_chooses_the_host_nor_a_header"
_NAMES = _SECURITY + "test_a_name_that_was_bound_anew_does_not_reach_a_loopback_gateway"
_NOT_A_HOST = "tests/gateway/test_auth.py::test_what_is_no_name_of_a_host_is_turned_away_keys_or_not"
_PATHS = _SECURITY + "test_no_spelling_of_a_path_passes_the_gate"
_SIGNS = _SECURITY + "test_no_sign_in_a_header_is_more_than_text"
_ADMINISTER = _SECURITY + "test_there_is_nothing_to_administer_and_no_file_to_get"
_RUN = _SECURITY + "test_no_text_is_ever_run"
_SECRETS = _SECURITY + "test_no_secret_is_told_anywhere"
_SCHEMA = _SECURITY + "test_a_hostile_schema_does_not_hold_up_other_requests"
_TIME = _SECURITY + "test_keys_are_compared_in_the_same_time_whatever_they_are"
_COUNTED = _SECURITY + "test_what_is_counted_is_what_upstreams_say_and_never_what_clients_do"
_SAME_KEY = "tests/gateway/test_exchange.py::test_losses_are_told_in_a_header_and_by_exchange_to_the_same_key_only"
_BROKEN_BODY = _SECURITY + "test_a_body_that_is_no_good_is_an_error_and_never_a_crash"
_LONG_BODY = _SECURITY + "test_a_body_over_the_limit_is_refused_whether_announced_or_not"
_PACKED = "tests/gateway/test_addresses.py::test_a_packed_body_that_is_no_good_is_refused"
_MCP = "tests/runtime/mcp/test_security.py::"
_MCP_SERVING = "tests/runtime/mcp/test_serving.py::"
_FAULTS = "tests/gateway/test_faults.py::"

ADVISORIES: dict[str, tuple[str, ...]] = {
    "CVE-2026-42208": (_SIGNS, "journal"),
    "CVE-2026-49468": (_PATHS, _NAMES, _NOT_A_HOST),
    'CVE-2026-48710 "BadHost"': (_PATHS, _NAMES, _NOT_A_HOST),
    "CVE-2026-30623": (
        _ADMINISTER,
        _MCP + "test_no_request_starts_a_program_or_adds_a_server",
        _MCP + "test_a_program_is_started_in_one_place_and_never_through_a_shell",
    ),
    "CVE-2026-40217": (_RUN, "runtime"),
    "CVE-2026-47101": (_ADMINISTER,),
    "OIDC userinfo cache-key collision": (
        "tests/gateway/test_auth.py::test_a_key_is_taken_from_any_protocols_own_place",
        _SAME_KEY,
    ),
    "CVE-2024-6587": (_HOSTS,),
    "CVE-2024-8984": (_BROKEN_BODY, _LONG_BODY, _PACKED),
    "PyPI 1.82.7/1.82.8": ("release",),
    "CVE-2026-25591": ("journal",),
    "GHSA-g53w-w6mj-hrpp": (_HOSTS, "tests/gateway/test_serving.py::test_what_can_not_be_served_is_said_in_one_line"),
    "path-normalization auth bypass": (_PATHS,),
    "SSRF validator added": (
        _HOSTS,
        "tests/upstream/test_transport.py::test_a_redirect_is_an_answer_and_is_not_followed",
    ),
    "timing attacks": (_TIME,),
    "secret in logs": (_SECRETS, _SECURITY + "test_values_that_are_lost_are_not_told_only_where_they_stood"),
    "MCP leaks/entitlements": (
        _HOSTS,
        _MCP + "test_there_is_no_way_round_a_rule",
        _MCP + "test_an_approval_is_for_the_call_that_was_asked_about",
        _MCP + "test_no_credential_is_in_what_is_told_of_a_failure",
        _MCP_SERVING + "test_nothing_of_a_callers_headers_goes_to_a_server_behind",
    ),
    "cross-tenant state": (_SAME_KEY, "state"),
    "SSTI": (_RUN, _SIGNS),
    "LFI/path traversal": (_ADMINISTER, "runtime"),
    "PromQL/other injection": (_COUNTED,),
    "client pricing injection": (_COUNTED,),
    "approval bypass": ("runtime",),
    "allowed_callers lost": (
        "tests/acceptance/test_server_tools.py::test_sv_9_a_tool_that_only_code_may_call_is_refused",
    ),
    "DoS by schema": (_SCHEMA,),
    "DNS rebinding": (
        _NAMES,
        _SECURITY + "test_a_page_of_another_origin_is_turned_away",
        _MCP_SERVING + "test_a_page_of_another_origin_or_under_another_name_is_turned_away",
    ),
    "older LiteLLM CVEs": (_RUN, _SIGNS, _ADMINISTER, _SECRETS, _BROKEN_BODY),
}

OWED: dict[str, tuple[str, ...]] = {
    "prompt injection through tool output": (_SECURITY + "test_the_output_of_a_tool_stays_data",),
    "Egress of the loss report and replay bundle": (
        _SECURITY + "test_values_that_are_lost_are_not_told_only_where_they_stood",
        "journal",
    ),
    "redirect is never followed": (
        "tests/upstream/test_transport.py::test_a_redirect_is_an_answer_and_is_not_followed",
    ),
    "a key quoted in a provider's error text": (_SECRETS,),
    "a truncated, empty or HTML answer": (
        _FAULTS + "test_a_fault_before_the_first_byte_is_an_error_of_the_clients_protocol",
        _FAULTS + "test_a_fault_within_a_stream_ends_it_with_the_protocols_own_error",
    ),
    "one broken upstream connection": (_FAULTS + "test_one_fault_does_not_spoil_the_next_request",),
    "one hostile schema": (_SCHEMA,),
    "NaN and Infinity": (_SECURITY + "test_what_is_no_json_number_never_goes_upstream",),
    "conflicting Content-Length and Transfer-Encoding": (_SECURITY + "test_a_length_and_chunks_at_once_are_refused",),
}
