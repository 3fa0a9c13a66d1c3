"""The security table: what hit products of this kind, each row with its tests, or the part that will bring them.

A key of `ADVISORIES` is how a row begins, and of `OWED` a phrase of the text below the table. A value is a list of node
ids of tests and of `PARTS`."""

PENDING = ("release",)

_SECURITY = "tests/gateway/test_security.py::"
_HOSTS = _SECURITY + "test_client_can_not_choose_upstream_host_or_headers"
_NAMES = _SECURITY + "test_dns_rebinding_does_not_reach_a_loopback_gateway"
_NOT_A_HOST = "tests/gateway/server/test_auth.py::test_invalid_host_is_rejected_with_or_without_keys"
_PATHS = _SECURITY + "test_no_path_spelling_bypasses_authentication"
_SIGNS = _SECURITY + "test_header_values_are_plain_text"
_ADMINISTER = _SECURITY + "test_no_admin_endpoints_and_no_files_are_served"
_RUN = _SECURITY + "test_text_is_never_executed"
_SECRETS = _SECURITY + "test_secrets_appear_nowhere"
_SCHEMA = _SECURITY + "test_hostile_schema_does_not_block_other_requests"
_TIME = _SECURITY + "test_keys_are_compared_in_constant_time"
_COUNTED = _SECURITY + "test_usage_is_counted_from_upstreams_not_from_clients"
_SAME_KEY = "tests/gateway/exchange/test_dispatcher.py::test_losses_are_in_a_header_and_readable_by_the_same_key_only"
_BROKEN_BODY = _SECURITY + "test_invalid_body_is_an_error_not_a_crash"
_LONG_BODY = _SECURITY + "test_body_over_the_limit_is_refused_with_or_without_content_length"
_PACKED = "tests/gateway/server/test_endpoints.py::test_invalid_compressed_body_is_refused"
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
        "tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped",
        "tests/scenarios/test_code_execution.py::test_a_program_whose_snapshot_was_changed_in_the_journal_is_refused",
    ),
    "CVE-2026-47101": (_ADMINISTER,),
    "OIDC userinfo cache-key collision": (
        "tests/gateway/server/test_auth.py::test_key_is_accepted_in_any_protocols_header",
        _SAME_KEY,
    ),
    "CVE-2024-6587": (_HOSTS,),
    "CVE-2024-8984": (_BROKEN_BODY, _LONG_BODY, _PACKED),
    "PyPI 1.82.7/1.82.8": ("release",),
    "CVE-2026-25591": ("tests/journal/test_injection.py::test_like_patterns_are_constants",),
    "GHSA-g53w-w6mj-hrpp": (
        _HOSTS,
        "tests/gateway/server/test_launch.py::test_invalid_configuration_is_a_one_line_error",
    ),
    "path-normalization auth bypass": (_PATHS,),
    "SSRF validator added": (
        _HOSTS,
        "tests/upstream/test_transport.py::test_redirects_are_not_followed",
        _FETCH + "test_no_notation_of_a_private_address_is_fetched",
        _FETCH + "test_redirect_target_is_checked",
    ),
    "timing attacks": (_TIME,),
    "secret in logs": (_SECRETS, _SECURITY + "test_losses_report_paths_without_values"),
    "MCP leaks/entitlements": (
        _HOSTS,
        _MCP + "test_every_path_to_a_tool_applies_the_policy",
        "tests/gateway/rounds/test_route_tools.py::test_call_without_an_allow_rule_is_denied",
        "tests/scenarios/test_code_execution.py::test_what_code_calls_is_decided_on_as_anything_else",
        _MCP + "test_approval_covers_only_the_requested_call",
        _MCP + "test_failure_messages_contain_no_credentials",
        _MCP_SERVING + "test_client_headers_do_not_reach_configured_servers",
    ),
    "cross-tenant state": (
        _SAME_KEY,
        "tests/gateway/state/test_store.py::test_rows_are_visible_to_their_owner_only",
        "tests/scenarios/test_sdk_state.py::test_another_key_sees_no_response",
        "tests/scenarios/test_sdk_state.py::test_another_key_sees_no_interaction",
        "tests/scenarios/test_sdk_state.py::test_another_key_sees_no_conversation",
    ),
    "SSTI": (_RUN, _SIGNS),
    "LFI/path traversal": (
        _ADMINISTER,
        _WORKSPACE + "test_path_outside_is_refused",
        _WORKSPACE + "test_link_to_the_outside_is_not_followed",
        _WORKSPACE + "test_swapped_link_never_reveals_files_outside",
        _WORKSPACE + "test_swapped_link_is_never_written_through",
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
        "tests/gateway/emulation/test_programs.py::test_direct_call_of_a_program_only_tool_is_denied",
    ),
    "DoS by schema": (
        _SCHEMA,
        "tests/runtime/mcp/test_hostile_servers.py::test_costly_schema_skips_only_its_tool",
        "tests/runtime/mcp/test_hostile_servers.py::test_result_too_costly_to_validate_is_refused",
    ),
    "DNS rebinding": (
        _NAMES,
        _SECURITY + "test_foreign_origin_is_rejected",
        _MCP_SERVING + "test_foreign_origin_or_host_is_rejected",
        "tests/cli/test_mcp.py::test_serve_over_http_applies_rules",
    ),
    "older LiteLLM CVEs": (_RUN, _SIGNS, _ADMINISTER, _SECRETS, _BROKEN_BODY),
}

FURTHER_RISKS: dict[str, tuple[str, ...]] = {
    "prompt injection through tool output": (
        _SECURITY + "test_tool_output_stays_data",
        _ADVERSARIAL + "test_tool_output_stays_in_its_result",
    ),
    "Egress of the loss report and replay bundle": (
        _SECURITY + "test_losses_report_paths_without_values",
        "tests/cli/test_journal.py::test_later_configured_key_is_redacted_everywhere",
    ),
    "redirect is never followed": ("tests/upstream/test_transport.py::test_redirects_are_not_followed",),
    "a key quoted in a provider's error text": (_SECRETS,),
    "a truncated, empty or HTML answer": (
        _FAULTS + "test_early_failure_is_an_error_in_the_clients_protocol",
        _FAULTS + "test_failure_within_a_stream_ends_with_the_protocols_error",
    ),
    "one broken upstream connection": (_FAULTS + "test_failure_does_not_affect_the_next_request",),
    "one hostile schema": (_SCHEMA,),
    "NaN and Infinity": (_SECURITY + "test_invalid_json_numbers_are_not_sent_upstream",),
    "conflicting Content-Length and Transfer-Encoding": (
        _SECURITY + "test_content_length_with_chunked_encoding_is_refused",
    ),
}
