"""The security table: what hit products of this kind, each row with its tests, or the part that will bring them.

A key of `ADVISORIES` is how a row begins, and of `OWED` a phrase of the text below the table. A value is a list of node
ids of tests and of `PARTS`."""

PENDING = ("release",)

_SECURITY = "tests/gateway/test_security.py::"
_HOSTS = _SECURITY + "test_a_client_never_chooses_the_host_nor_a_header"
_NAMES = _SECURITY + "test_a_name_that_was_bound_anew_does_not_reach_a_loopback_gateway"
_NOT_A_HOST = "tests/gateway/server/test_auth.py::test_what_is_no_name_of_a_host_is_turned_away_keys_or_not"
_PATHS = _SECURITY + "test_no_spelling_of_a_path_passes_the_gate"
_SIGNS = _SECURITY + "test_no_sign_in_a_header_is_more_than_text"
_ADMINISTER = _SECURITY + "test_there_is_nothing_to_administer_and_no_file_to_get"
_RUN = _SECURITY + "test_no_text_is_ever_run"
_SECRETS = _SECURITY + "test_no_secret_is_told_anywhere"
_SCHEMA = _SECURITY + "test_a_hostile_schema_does_not_hold_up_other_requests"
_TIME = _SECURITY + "test_keys_are_compared_in_the_same_time_whatever_they_are"
_COUNTED = _SECURITY + "test_what_is_counted_is_what_upstreams_say_and_never_what_clients_do"
_SAME_KEY = (
    "tests/gateway/exchange/test_dispatcher.py::test_losses_are_told_in_a_header_and_by_exchange_to_the_same_key_only"
)
_BROKEN_BODY = _SECURITY + "test_a_body_that_is_no_good_is_an_error_and_never_a_crash"
_LONG_BODY = _SECURITY + "test_a_body_over_the_limit_is_refused_whether_announced_or_not"
_PACKED = "tests/gateway/server/test_endpoints.py::test_a_packed_body_that_is_no_good_is_refused"
_MCP = "tests/runtime/mcp/test_security.py::"
_MCP_SERVING = "tests/runtime/mcp/test_server.py::"
_WORKSPACE = "tests/runtime/tools/test_workspace.py::"
_FETCH = "tests/runtime/tools/test_web_fetch.py::"
_FAULTS = "tests/gateway/exchange/test_upstream_failures.py::"
_STATEMENTS = "tests/journal/test_injection.py::test_sql_statements_are_constants"
_ADVERSARIAL = "tests/runtime/test_adversarial.py::"

ADVISORIES: dict[str, tuple[str, ...]] = {
    "CVE-2026-42208": (
        _SIGNS,
        _STATEMENTS,
        "tests/journal/test_injection.py::test_special_characters_in_ids_do_not_change_queries",
        "tests/scenarios/test_sdk_state.py::test_whatever_an_id_says_it_is_just_not_there",
    ),
    "CVE-2026-49468": (_PATHS, _NAMES, _NOT_A_HOST),
    'CVE-2026-48710 "BadHost"': (_PATHS, _NAMES, _NOT_A_HOST),
    "CVE-2026-30623": (
        _ADMINISTER,
        _MCP + "test_requests_cannot_start_programs_or_add_servers",
        _MCP + "test_programs_start_in_one_place_without_a_shell",
    ),
    "CVE-2026-40217": (
        _RUN,
        "tests/runtime/sandbox/code/test_hostile_code.py::test_there_is_no_way_out",
        "tests/scenarios/test_code_execution.py::test_a_program_whose_snapshot_was_changed_in_the_journal_is_refused",
    ),
    "CVE-2026-47101": (_ADMINISTER,),
    "OIDC userinfo cache-key collision": (
        "tests/gateway/server/test_auth.py::test_a_key_is_taken_from_any_protocols_own_place",
        _SAME_KEY,
    ),
    "CVE-2024-6587": (_HOSTS,),
    "CVE-2024-8984": (_BROKEN_BODY, _LONG_BODY, _PACKED),
    "PyPI 1.82.7/1.82.8": ("release",),
    "CVE-2026-25591": ("tests/journal/test_injection.py::test_like_patterns_are_constants",),
    "GHSA-g53w-w6mj-hrpp": (
        _HOSTS,
        "tests/gateway/server/test_launch.py::test_what_can_not_be_served_is_said_in_one_line",
    ),
    "path-normalization auth bypass": (_PATHS,),
    "SSRF validator added": (
        _HOSTS,
        "tests/upstream/test_transport.py::test_a_redirect_is_an_answer_and_is_not_followed",
        _FETCH + "test_no_spelling_of_a_private_address_is_fetched",
        _FETCH + "test_a_redirect_is_judged_as_the_first_place",
    ),
    "timing attacks": (_TIME,),
    "secret in logs": (_SECRETS, _SECURITY + "test_values_that_are_lost_are_not_told_only_where_they_stood"),
    "MCP leaks/entitlements": (
        _HOSTS,
        _MCP + "test_every_path_to_a_tool_applies_the_policy",
        "tests/gateway/rounds/test_route_tools.py::test_what_no_rule_allows_is_denied_and_told_to_the_model",
        "tests/scenarios/test_code_execution.py::test_what_code_calls_is_decided_on_as_anything_else",
        _MCP + "test_approval_covers_only_the_requested_call",
        _MCP + "test_failure_messages_contain_no_credentials",
        _MCP_SERVING + "test_client_headers_do_not_reach_configured_servers",
    ),
    "cross-tenant state": (
        _SAME_KEY,
        "tests/gateway/state/test_store.py::test_what_was_kept_is_there_for_its_owner_alone",
        "tests/scenarios/test_sdk_state.py::test_another_key_sees_no_response",
        "tests/scenarios/test_sdk_state.py::test_another_key_sees_no_interaction",
        "tests/scenarios/test_sdk_state.py::test_another_key_sees_no_conversation",
    ),
    "SSTI": (_RUN, _SIGNS),
    "LFI/path traversal": (
        _ADMINISTER,
        _WORKSPACE + "test_a_path_that_leads_out_is_refused",
        _WORKSPACE + "test_a_link_that_leads_out_is_not_followed",
        _WORKSPACE + "test_a_link_that_is_swapped_in_while_a_path_is_walked_never_shows_what_is_outside",
        _WORKSPACE + "test_a_link_that_is_swapped_in_is_never_written_through",
    ),
    "PromQL/other injection": (_COUNTED,),
    "client pricing injection": (_COUNTED,),
    "approval bypass": (
        _ADVERSARIAL + "test_approval_of_another_call_is_ignored",
        "tests/runtime/run/test_loop.py::test_approval_of_another_call_does_not_run_this_one",
        "tests/runtime/run/test_loop.py::test_approval_digests_of_different_calls_differ",
        "tests/runtime/test_policy.py::test_tool_names_match_exactly",
        "tests/runtime/test_policy.py::test_only_workspace_reads_are_allowed_by_default",
    ),
    "allowed_callers lost": (
        "tests/acceptance/test_server_tools.py::test_sv_9_a_tool_that_only_code_may_call_is_refused",
        "tests/gateway/emulation/test_programs.py::test_a_direct_call_of_what_only_programs_may_call_is_denied",
    ),
    "DoS by schema": (
        _SCHEMA,
        "tests/runtime/mcp/test_hostile_servers.py::test_costly_schema_skips_only_its_tool",
        "tests/runtime/mcp/test_hostile_servers.py::test_result_too_costly_to_validate_is_refused",
    ),
    "DNS rebinding": (
        _NAMES,
        _SECURITY + "test_a_page_of_another_origin_is_turned_away",
        _MCP_SERVING + "test_foreign_origin_or_host_is_rejected",
        "tests/cli/test_mcp.py::test_it_serves_over_http_under_its_rules",
    ),
    "older LiteLLM CVEs": (_RUN, _SIGNS, _ADMINISTER, _SECRETS, _BROKEN_BODY),
}

FURTHER_RISKS: dict[str, tuple[str, ...]] = {
    "prompt injection through tool output": (
        _SECURITY + "test_the_output_of_a_tool_stays_data",
        _ADVERSARIAL + "test_tool_output_stays_in_its_result",
    ),
    "Egress of the loss report and replay bundle": (
        _SECURITY + "test_values_that_are_lost_are_not_told_only_where_they_stood",
        "tests/cli/test_journal.py::test_a_key_that_is_known_since_is_in_nothing_that_is_shown_or_exported",
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
