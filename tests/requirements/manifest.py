"""Requirements on tool calling, grouped by section, each with the tests that prove it.

Every table holds lines of the form `SECTION-NUMBER TEXT`, each followed by the node ids of its tests.
"""

from tests.requirements.tables import Requirement, parse_requirements

# Failures of tool-calling integrations.
FAILURE_MODES = r"""
failure-modes-1 OpenAI Responses output items mistaken for Chat Completions tool messages
  -> tests/requirements/test_contracts.py::test_format_tool_results_returns_the_continuation
failure-modes-2 function_call item id confused with call_id pairing key
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_responses_pairs_by_call_id_not_by_item_id
failure-modes-3 custom text-tool inputs treated as JSON-schema object arguments
  -> tests/acceptance/test_names_custom.py::test_cu_2_a_custom_tool_becomes_a_function_and_its_call_is_restored
failure-modes-4 tool-result IDs omitted or mismatched
  -> tests/requirements/test_contracts.py::test_results_carry_the_exact_id_of_their_call
failure-modes-5 Anthropic tool_result blocks inserted in the wrong message position
  -> tests/acceptance/test_order.py::test_or_4_results_share_one_turn_and_unanswered_calls_get_a_placeholder
failure-modes-6 Gemini function-call IDs or thought signatures omitted in manual history
  -> tests/requirements/test_contracts.py::test_continue_request_gemini_keeps_ids_and_signatures_of_the_model
  -> tests/acceptance/test_ids_without.py::test_id_9_ids_from_the_provider_stand_on_call_and_result
failure-modes-7 Gemini Interactions previous_interaction_id treated as permanent hidden memory instead of provider-supported continuation with beta and retention limits
  -> tests/test_tool_cycle.py::test_previous_interaction_id_is_reported_elsewhere
  -> tests/requirements/test_contracts.py::test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings
failure-modes-8 computer-use actions executed without screenshot/result feedback, coordinate mapping, isolation, approval, or page-content prompt-injection handling
  -> tests/runtime/tools/browser/chromium/test_display.py::test_click_hits_what_the_screenshot_shows
  -> tests/runtime/tools/browser/chromium/test_actions.py::test_sessions_share_nothing
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_task_in_another_vendor_format
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_actions_without_rule_are_not_performed
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_instructions_in_a_page_have_no_effect
failure-modes-9 programmatic tool calling treated as unsandboxed model code execution or as a universal syntax rule
  -> tests/acceptance/test_server_tools.py::test_sv_9_a_tool_that_only_code_may_call_is_refused
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped
failure-modes-10 large tool catalogs loaded eagerly instead of discovered/deferred just in time
  -> tests/runtime/search/test_deferred_tools.py::test_above_the_limit_only_search_and_always_tools_are_declared
failure-modes-11 MCP 2026-07-28 release-candidate behavior treated as current stable protocol
  -> tests/runtime/mcp/test_toolset.py::test_older_server_never_receives_newer_messages
  -> tests/runtime/mcp/test_toolset.py::test_pinned_version_is_required
failure-modes-12 partial streamed arguments executed before validation
  -> tests/acceptance/test_streaming.py::test_st_15_arguments_that_parse_early_are_not_final
  -> tests/runtime/run/test_single_calls.py::test_call_errors_are_results_for_the_model
failure-modes-13 MCP protocol errors collapsed with tool execution errors
  -> tests/runtime/mcp/test_toolset.py::test_tool_failure_is_an_output_and_protocol_failure_an_error
  -> tests/acceptance/test_mcp.py::test_er_4_a_failed_mcp_tool_is_a_failure_in_the_record_and_to_the_model
failure-modes-14 untrusted tool output promoted into instruction channels
  -> tests/acceptance/test_order.py::test_or_2_results_around_a_text_stay_together
  -> tests/runtime/test_adversarial.py::test_tool_output_stays_in_its_result
failure-modes-15 private runtime state assumed to be model-visible
  -> tests/runtime/test_adversarial.py::test_record_fields_do_not_reach_the_model
"""  # noqa: E501

# Invariants of every tool-calling protocol: the rule, the check, the failure if broken.
INVARIANTS = r"""
invariants-1 Tool declaration is model input The model sees a bounded catalog with names, descriptions, and input contracts, or a discovery surface that can expose that catalog just in time. The model invents unavailable tools or malformed arguments.
  -> tests/requirements/test_contracts.py::test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper
  -> tests/runtime/test_function_tool.py::test_signature_becomes_a_schema
  -> tests/scenarios/test_code_execution.py::test_large_catalog_is_offered_through_search
invariants-2 Tool request is structured intent The model emits a typed block/item/action, not direct execution authority. Runtime code treats free text as permission to act.
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_returns_the_fields_of_the_contract
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_returns_nothing_for_a_text_response
  -> tests/requirements/test_requirements.py::test_text_that_spells_a_call_runs_nothing
  -> tests/runtime/test_adversarial.py::test_call_written_as_text_never_runs
invariants-3 Runtime validates before execution Tool name, arguments, grammar, authorization, idempotency, and side-effect policy are checked before dispatch. Malformed, unauthorized, or destructive calls execute because the model asked.
  -> tests/runtime/run/test_single_calls.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/run/test_single_calls.py::test_denied_call_names_the_rule_and_does_not_run
invariants-4 Result is paired by ID Every result carries the request ID: tool_use_id, tool_call_id, call_id, Gemini function-call id, or framework equivalent. The continuation turn cannot prove which result belongs to which request.
  -> tests/requirements/test_contracts.py::test_results_carry_the_exact_id_of_their_call
  -> tests/test_tool_cycle.py::test_repeated_call_has_unique_and_stable_ids
invariants-5 Continuation preserves required output The next request includes prior assistant tool-call output and provider-required reasoning, thinking, response, or interaction artifacts. The provider rejects the request or the model loses the context needed to continue.
  -> tests/requirements/test_contracts.py::test_continue_request_responses_keeps_all_output_items_with_reasoning
  -> tests/requirements/test_contracts.py::test_continue_request_anthropic_keeps_the_blocks_and_answers_in_call_order
  -> tests/requirements/test_contracts.py::test_continue_request_chat_appends_the_message_and_tool_messages
  -> tests/requirements/test_contracts.py::test_continue_request_gemini_keeps_ids_and_signatures_of_the_model
  -> tests/requirements/test_contracts.py::test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings
  -> tests/requirements/test_contracts.py::test_continue_request_ollama_answers_calls_without_ids_by_name_and_order
invariants-6 Tool output stays in a data channel Results remain in tool-result/function-output/screenshot/result blocks and are treated as untrusted data. Prompt injection inside retrieved content can be promoted into instructions.
  -> tests/runtime/test_adversarial.py::test_tool_output_stays_in_its_result
  -> tests/runtime/test_adversarial.py::test_simulated_model_ignores_instructions_in_results
invariants-7 Loop termination is explicit Runtime caps steps and exits when the model emits a non-tool answer or hits a guardrail. A model can re-call tools indefinitely.
  -> tests/runtime/run/test_stops.py::test_turn_limit_stops_the_run
  -> tests/runtime/run/test_stops.py::test_repeated_call_stops_the_run_before_executing
"""  # noqa: E501

# Responsibilities of the runtime.
RESPONSIBILITIES = r"""
responsibilities-1 Tool-surface shaping - expose relevant tools or provide a discovery/search mechanism for large catalogs.
  -> tests/runtime/search/test_deferred_tools.py::test_above_the_limit_only_search_and_always_tools_are_declared
responsibilities-2 Schema and grammar validation - validate JSON-schema arguments, grammar-constrained text, output schemas, and provider-specific strict-mode compatibility.
  -> tests/runtime/calls/test_validation.py::test_errors_name_path_and_keyword
  -> tests/runtime/calls/test_validation.py::test_grammar_error_names_the_position
  -> tests/runtime/run/test_single_calls.py::test_output_is_validated_against_its_schema
  -> tests/codec/schema/test_laws.py::test_strict_schema_meets_the_strict_rules
  -> tests/acceptance/test_arguments.py::test_ar_13_a_tool_with_an_open_map_is_not_marked_strict
responsibilities-3 Provider-continuity preservation - preserve response output items, reasoning items, thinking blocks, function-call IDs, Gemini function-call IDs, interaction IDs, or SDK runner state required by the next turn.
  -> tests/requirements/test_contracts.py::test_continue_request_responses_keeps_all_output_items_with_reasoning
  -> tests/requirements/test_contracts.py::test_continue_request_anthropic_keeps_the_blocks_and_answers_in_call_order
  -> tests/requirements/test_contracts.py::test_continue_request_gemini_keeps_ids_and_signatures_of_the_model
  -> tests/requirements/test_contracts.py::test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings
responsibilities-4 Dispatch - route validated calls to local code, network APIs, MCP servers, provider-hosted tools, subagents, humans, sandboxes, or UI harnesses.
  -> tests/scenarios/test_agents.py::test_task_has_the_same_effects_on_every_protocol
  -> tests/runtime/run/test_loop.py::test_agent_as_a_tool_has_its_own_policy
  -> tests/scenarios/test_code_execution.py::test_twenty_calls_take_one_turn
responsibilities-5 Authorization and approval - pause or deny destructive, costly, privileged, high-impact, externally visible, or suspicious actions.
  -> tests/runtime/run/test_run_approvals.py::test_approvals_are_requested_before_any_call_of_the_batch_runs
  -> tests/runtime/test_policy.py::test_only_workspace_reads_are_allowed_by_default
responsibilities-6 Execution policy - timeouts, retries, rate limits, idempotency, parallelism limits, container/resource limits, egress limits, credential scope, and cancellation.
  -> tests/runtime/run/test_single_calls.py::test_tool_is_stopped_at_its_timeout
  -> tests/runtime/run/test_single_calls.py::test_only_idempotent_tools_are_retried_with_the_same_key
  -> tests/runtime/run/test_single_calls.py::test_rate_limit_is_enforced
  -> tests/runtime/run/test_batches.py::test_independent_calls_run_in_parallel_with_results_in_order
  -> tests/runtime/run/test_loop.py::test_cancelling_a_run_cancels_its_tools
  -> tests/runtime/tools/test_run_shell_command.py::test_memory_is_limited_per_process_and_in_total
  -> tests/runtime/tools/test_run_shell_command.py::test_environment_has_no_secrets
  -> tests/runtime/tools/test_web_fetch.py::test_no_notation_of_a_private_address_is_fetched
  -> tests/runtime/tools/test_run_shell_command.py::test_a_fork_bomb_is_stopped
  -> tests/runtime/mcp/test_security.py::test_changed_url_gets_no_tokens_of_the_old_one
  -> tests/cli/test_ask.py::test_yes_runs_no_command_outside_a_sandbox
responsibilities-7 Result encoding - format outputs as tool-result/function-output/screenshot/result messages paired by ID, with error flags where appropriate.
  -> tests/requirements/test_contracts.py::test_format_tool_results_returns_the_continuation
  -> tests/requirements/test_contracts.py::test_an_error_result_is_marked_as_an_error
responsibilities-8 Untrusted-output handling - keep results in data channels, redact where needed, bound output size, attach provenance, and avoid instruction promotion.
  -> tests/runtime/run/test_single_calls.py::test_long_output_keeps_head_and_tail
  -> tests/runtime/run/test_single_calls.py::test_secrets_are_redacted_in_results_and_records
responsibilities-9 Transport/session security - for MCP and remote tools, validate origins, authenticate connections, bind local servers safely, handle resumability, and fail closed on unsupported protocol versions.
  -> tests/runtime/mcp/test_server.py::test_foreign_origin_or_host_is_rejected
  -> tests/runtime/mcp/test_server.py::test_requests_without_a_key_are_rejected
  -> tests/cli/test_mcp.py::test_serve_without_keys_only_on_loopback
  -> tests/runtime/mcp/test_http_transport.py::test_lost_session_is_reopened_and_the_call_resent
  -> tests/runtime/mcp/test_server.py::test_unknown_protocol_version_is_refused
  -> tests/runtime/mcp/test_stream_resumption.py::test_interrupted_stream_resumes_after_its_last_event
responsibilities-10 Loop control - cap turns/steps, detect runaway loops, and know when manual control is required.
  -> tests/runtime/run/test_stops.py::test_turn_limit_stops_the_run
  -> tests/runtime/run/test_stops.py::test_repeated_call_stops_the_run_before_executing
  -> tests/runtime/run/test_loop.py::test_step_stops_before_execution
  -> tests/runtime/run/test_limits.py::test_cycle_of_turns_is_detected
responsibilities-11 Observability - record tool name, request ID, validated arguments, approval decision, start/end times, result summary, error class, retries, continuation message ID, and provider/version.
  -> tests/runtime/run/test_loop.py::test_complete_run_with_one_tool_call
  -> tests/runtime/test_adversarial.py::test_events_and_journal_have_the_complete_record
  -> tests/runtime/run/test_tracing.py::test_run_turns_and_calls_are_spans
  -> tests/runtime/run/test_run_records.py::test_call_record_has_all_audit_fields
responsibilities-12 Audit and persistence - store the transcript or structured trace so runs are replayable without leaking secrets.
  -> tests/requirements/test_requirements.py::test_a_recorded_run_is_replayed_and_holds_no_secret
  -> tests/runtime/run/test_recorded_run.py::test_replay_executes_nothing_and_reports_differences
  -> tests/cli/test_runs.py::test_replay_against_recorded_results_executes_nothing
"""  # noqa: E501

# Where tools run: the location, who runs the tool, and the duties of the application.
EXECUTION_LOCATIONS = r"""
execution-locations-1 Client/user-defined tool Your runtime executes local code, service calls, or human workflows. Validation, authorization, dispatch, result encoding, retries, loop caps, logs.
  -> tests/runtime/run/test_loop.py::test_complete_run_with_one_tool_call
  -> tests/runtime/run/test_single_calls.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/run/test_stops.py::test_turn_limit_stops_the_run
execution-locations-2 Provider-hosted/server tool The model provider executes an approved hosted tool such as web search, code execution, file search, computer use, or hosted MCP. Tool choice policy, approval settings, observability, output trust boundaries, returned artifacts, and data-retention fit.
  -> tests/acceptance/test_server_tools.py::test_sv_11_results_of_provider_tools_stay_with_their_calls
  -> tests/acceptance/test_server_tools.py::test_sv_4_every_built_in_tool_is_mapped_or_reported
  -> tests/features/test_mcp_connectors.py::test_a_server_that_requires_approval_is_refused
execution-locations-3 MCP server tool An MCP host/client discovers tools with tools/list, invokes tools/call, and translates results into the provider's format. MCP transport/session security, server trust, tool approval, result shaping, and version pinning.
  -> tests/runtime/mcp/test_toolset.py::test_tools_are_listed_and_called
  -> tests/runtime/mcp/test_security.py::test_every_path_to_a_tool_applies_the_policy
  -> tests/runtime/mcp/test_hostile_servers.py::test_policy_ignores_server_annotations
execution-locations-4 SDK-managed runner An SDK wraps the loop and may execute tools, append results, and stop after configured iterations. Correct definitions, approval gates, error policy, trace capture, max iterations, and knowing when to take over manually.
  -> tests/scenarios/test_sdk_helpers.py::test_sdk_tool_loop_runs_three_steps
  -> tests/runtime/run/test_stops.py::test_turn_limit_stops_the_run
  -> tests/runtime/run/test_loop.py::test_step_stops_before_execution
execution-locations-5 Programmatic sandbox Generated code calls allowed tools, loops, filters, and distills intermediate results before returning a compact observation. Sandbox isolation, allowed callers, egress limits, credential scope, provider resource limits, provenance, and validation of distilled output.
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped
  -> tests/runtime/sandbox/code/test_tool.py::test_sequential_calls_return_only_the_last_value
  -> tests/runtime/sandbox/code/test_tool.py::test_run_code_and_direct_only_tools_are_excluded
execution-locations-6 Computer-use/browser-control harness The model returns screenshot-grounded UI actions; the harness clicks, types, scrolls, waits, drags, moves, or captures screenshots. Isolated environment, action allowlist, coordinate mapping, screenshot/result feedback, high-impact approvals, prompt-injection handling, and trace capture.
  -> tests/runtime/tools/browser/test_toolset.py::test_only_allowed_actions_are_declared_and_accepted
  -> tests/runtime/tools/browser/chromium/test_display.py::test_click_hits_what_the_screenshot_shows
  -> tests/runtime/tools/browser/chromium/test_consent.py::test_buying_needs_approval
"""  # noqa: E501

# Tool search: the pattern, its flow, its failure mode.
TOOL_SEARCH = r"""
tool-search-1 Provider-hosted tool search Mark functions/MCP servers as deferred; include tool_search; provider searches and loads a subset. Deferring the search tool itself, hiding always-needed tools, or assuming discovery authorizes execution.
  -> tests/runtime/search/test_deferred_tools.py::test_native_search_gets_all_tools_deferred_without_losses
  -> tests/runtime/search/test_deferred_tools.py::test_above_the_limit_only_search_and_always_tools_are_declared
  -> tests/runtime/search/test_deferred_tools.py::test_finding_a_tool_does_not_allow_it
tool-search-2 Client-executed tool search Model emits a search call; your runtime performs BM25, semantic, regex, policy-filtered, filesystem, or tenant-specific lookup and returns definitions. Returning untrusted or unauthorized tools, leaking private metadata, or bypassing approval gates.
  -> tests/gateway/emulation/test_tool_search.py::test_gateway_search_appears_as_the_clients_own
  -> tests/runtime/search/test_deferred_tools.py::test_denied_tools_are_neither_declared_nor_found
  -> tests/runtime/search/test_index.py::test_unusable_tools_are_skipped_before_the_limit
tool-search-3 MCP discovery Host/client lists tools from MCP servers and shapes the provider-facing catalog just in time. Treating discovery as trust, flooding context with every schema, or failing to cache/version definitions deliberately.
  -> tests/runtime/mcp/test_toolset.py::test_tool_list_is_cached_until_it_expires
  -> tests/runtime/mcp/test_toolset.py::test_only_configured_tools_are_offered
  -> tests/runtime/mcp/test_hostile_servers.py::test_policy_ignores_server_annotations
tool-search-4 Code execution with MCP Tool definitions are exposed as filesystem/code APIs inside a sandbox, so the model reads only the needed files and calls tools from code. Confusing sandbox state with model-visible state, omitting sandbox policy, or letting intermediate data leak into logs.
  -> tests/runtime/sandbox/code/test_tool.py::test_code_can_search_and_describe_tools
  -> tests/runtime/sandbox/code/test_tool.py::test_many_tools_are_searchable_but_not_listed
  -> tests/requirements/test_requirements.py::test_code_calls_an_mcp_tool_and_only_its_result_reaches_the_model
"""  # noqa: E501

# Programmatic tool calling: the variant, the change, the duties that remain.
PROGRAMMATIC_CALLS = r"""
programmatic-calls-1 Client-side direct execution The application exposes functions to generated code and runs that code locally. Safe arbitrary-code execution, callable allowlist, arguments, side effects, returned data, and logs.
  -> tests/scenarios/test_code_execution.py::test_calls_from_code_follow_the_policy
  -> tests/scenarios/test_code_execution.py::test_code_is_not_offered_tools_that_are_always_denied
programmatic-calls-2 Self-managed sandbox Generated code runs in a restricted container and calls tools through an explicit bridge. Isolation, egress policy, resource limits, IPC/tool-call protocol, credentials, audit logs, and result validation.
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_limits_are_enforced
  -> tests/runtime/sandbox/code/test_tool.py::test_tampered_steps_are_rejected
programmatic-calls-3 Provider-managed programmatic tool calling Provider manages the sandbox and invocation channel for allowed tools. Allowed-caller policy, tool restrictions, data retention, approval policy, trace capture, and returned artifacts.
  -> tests/gateway/emulation/test_programs.py::test_direct_call_of_a_program_only_tool_is_denied
  -> tests/gateway/emulation/test_programs.py::test_expired_program_times_out
  -> tests/acceptance/test_server_tools.py::test_sv_10_callers_of_another_vendor_are_never_mapped_silently
programmatic-calls-4 Code execution with MCP Code calls MCP tools or MCP-like adapters to avoid sending every intermediate result through model context. MCP server trust, credential scope, sandbox-to-MCP permissions, explicit state handles, and final result shaping.
  -> tests/requirements/test_requirements.py::test_code_calls_an_mcp_tool_and_only_its_result_reaches_the_model
  -> tests/requirements/test_requirements.py::test_code_cannot_call_tools_that_no_rule_allows
  -> tests/gateway/emulation/test_programs.py::test_mcp_tools_are_not_callable_by_programs
"""  # noqa: E501

# Computer use: the element, its meaning, the duty of the runtime.
COMPUTER_USE = r"""
computer-use-1 Screenshot/UI state Model-visible observation grounding the next action. Capture declared dimensions, redact sensitive regions when needed, preserve viewport/source provenance, and return fresh state after actions.
  -> tests/runtime/tools/browser/chromium/test_display.py::test_declared_size_equals_screenshot_size
  -> tests/runtime/tools/browser/chromium/test_redaction.py::test_redacted_elements_and_areas_are_black
  -> tests/runtime/tools/browser/chromium/test_actions.py::test_screenshot_shows_effects_of_the_click
computer-use-2 Action batch Structured intent such as screenshot, click, double click, type, keypress, scroll, drag, mouse move, wait, or provider equivalent. Execute only supported actions, in order, with timeout/resource limits and approval before sensitive or externally visible effects.
  -> tests/runtime/tools/browser/test_toolset.py::test_only_allowed_actions_are_declared_and_accepted
  -> tests/runtime/tools/browser/chromium/test_page_events.py::test_refused_action_ends_the_batch_with_a_reason
  -> tests/runtime/tools/browser/chromium/test_page_events.py::test_unresponsive_page_is_closed
computer-use-3 Coordinates Arguments whose frame is the screenshot or declared display. Keep display dimensions aligned with the actual image; handle downsampling, device-pixel-ratio, zoom, crop regions, and coordinate scaling.
  -> tests/runtime/tools/browser/chromium/test_display.py::test_click_hits_what_the_screenshot_shows
  -> tests/runtime/tools/browser/chromium/test_display.py::test_declared_size_equals_screenshot_size
  -> tests/features/computer_use/test_actions.py::test_coordinates_are_not_guessed_without_the_display_size
computer-use-4 Page/screen content Tool output controlled by websites, apps, documents, emails, or images. Treat on-screen instructions as untrusted data, not user permission; stop or ask before credentials, purchases, account changes, phishing, or other high-impact actions.
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_instructions_in_a_page_have_no_effect
  -> tests/runtime/tools/browser/chromium/test_consent.py::test_page_text_is_only_an_observation
  -> tests/runtime/tools/browser/chromium/test_consent.py::test_secret_fields_need_approval
computer-use-5 Continuation New screenshot/result after action execution. Pair it to the request (call_id, tool_use_id, or equivalent) and repeat until the model stops or a guardrail fires.
  -> tests/features/computer_use/test_calls.py::test_the_upstream_receives_its_own_calls_with_their_results
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_task_in_native_vendor_format
"""  # noqa: E501

# Strict schemas and validation at run time.
SCHEMAS = r"""
schemas-1 Use constrained schemas: explicit type, required, enums where useful, bounded arrays/strings where possible, and clear descriptions for each argument.
  -> tests/runtime/test_function_tool.py::test_signature_becomes_a_schema
schemas-2 Enable provider strict/schema-adherent modes deliberately when available. OpenAI strict mode requires schemas that can be normalized into the supported subset; if omitted in Responses, the API attempts strict-compatible normalization when possible and can fall back to non-strict. Chat Completions remains non-strict by default.
  -> tests/acceptance/test_schema.py::test_sc_13_a_tool_that_is_not_strict_says_so_to_responses
  -> tests/acceptance/test_arguments.py::test_ar_13_a_tool_with_an_open_map_is_not_marked_strict
  -> tests/codec/schema/test_laws.py::test_strict_schema_meets_the_strict_rules
schemas-3 Still validate in the runtime. Provider strictness is version-specific, supports subsets of JSON Schema, and does not prove authorization, freshness, idempotency, or semantic safety.
  -> tests/runtime/run/test_single_calls.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/calls/test_validation.py::test_errors_name_path_and_keyword
  -> tests/runtime/run/test_single_calls.py::test_calls_are_denied_without_rule_and_approver
schemas-4 Recognize non-JSON argument contracts. OpenAI custom tools can accept grammar-constrained text input (lark or regex) instead of JSON-schema arguments; validate by grammar parsing and execution policy.
  -> tests/runtime/calls/test_validation.py::test_grammar_error_names_the_position
  -> tests/runtime/calls/test_validation.py::test_regex_grammar_must_match_the_complete_text
schemas-5 Treat output schemas as a separate contract. MCP 2025-11-25 supports outputSchema and structuredContent; clients should validate structured results when an output schema is declared.
  -> tests/runtime/mcp/test_toolset.py::test_structured_content_is_validated
  -> tests/runtime/mcp/test_toolset.py::test_missing_structured_content_is_an_error
  -> tests/runtime/run/test_single_calls.py::test_output_is_validated_against_its_schema
schemas-6 Do not put private or sensitive data in schema names, enum values, const values, examples, or regex patterns. Schemas are often cached and logged differently from message content.
  -> tests/codec/test_sensitive_data.py::test_sensitive_literals_in_tool_schemas_are_warned_about
"""  # noqa: E501

# Parallel tool calls.
PARALLEL_CALLS = r"""
parallel-calls-1 Protocols allow multiple tool-call blocks/items in one assistant turn. Those calls are an unordered batch. The runtime may execute them concurrently, sequentially, or in any order, but the model cannot condition one call in the batch on another call's result. Dependent calls must be sequential across turns.
  -> tests/runtime/run/test_batches.py::test_independent_calls_run_in_parallel_with_results_in_order
  -> tests/acceptance/test_parallel.py::test_pa_8_every_call_of_a_response_is_kept
parallel-calls-2 If a batched call turns out to depend on another result and fails naturally, return that failure as an error result; the model can reissue the dependent call on the next turn. When using Anthropic-style parallel tool results, send the batch's tool-result blocks in one continuation message and place result blocks before any explanatory text. When deterministic ordering matters more than latency, disable parallel calls through the provider's controls where available.
  -> tests/runtime/run/test_single_calls.py::test_call_errors_are_results_for_the_model
  -> tests/acceptance/test_order.py::test_or_4_results_share_one_turn_and_unanswered_calls_get_a_placeholder
"""  # noqa: E501

# Streamed tool calls.
STREAMED_CALLS = r"""
streamed-calls-1 Streaming changes when the runtime can observe a request, not the correctness contract. The safe rule is: aggregate argument deltas, parse and validate when the provider says the item/block is complete, then execute. Some providers expose fine-grained argument streaming where chunks arrive before server-side JSON buffering or validation; this reduces latency for large arguments but means clients must handle incomplete/invalid JSON and max_tokens cutoffs. Speculative execution is safe only when the call name, ID, and arguments are complete enough for the tool's idempotency and validation policy.
  -> tests/acceptance/test_streaming.py::test_st_15_arguments_that_parse_early_are_not_final
  -> tests/runtime/run/test_stops.py::test_calls_of_an_incomplete_response_never_run
  -> tests/test_tool_cycle.py::test_call_of_a_truncated_response_is_incomplete
"""  # noqa: E501

# Encoding of failures.
FAILURE_ENCODING = r"""
failure-encoding-1 Tool execution failure Business/API rejection, timeout, permission denied, schema-valid input fails domain validation, dependency missing, tool-specific error Return a model-visible tool result with error content (is_error, isError, error object, or framework equivalent). The model can retry, choose another tool, ask the user, or stop.
  -> tests/runtime/run/test_single_calls.py::test_call_errors_are_results_for_the_model
  -> tests/requirements/test_contracts.py::test_an_error_result_is_marked_as_an_error
  -> tests/acceptance/test_mcp.py::test_er_4_a_failed_mcp_tool_is_a_failure_in_the_record_and_to_the_model
failure-encoding-2 Protocol/transport/request-shape failure Malformed JSON-RPC, invalid message ordering, missing tool_call_id, wrong call_id, provider 400 from misplaced result blocks, lost MCP Streamable HTTP session, incompatible strict schema Runtime handles, retries, or fails closed outside the model when needed. If the model can recover, summarize the problem into a valid continuation; otherwise log the trace and stop safely.
  -> tests/runtime/mcp/test_toolset.py::test_tool_failure_is_an_output_and_protocol_failure_an_error
  -> tests/runtime/run/test_stops.py::test_protocol_error_fails_the_run_with_a_clear_message
  -> tests/runtime/mcp/test_http_transport.py::test_lost_session_is_reopened_and_the_call_resent
failure-encoding-3 The runtime should not throw raw exceptions into the conversation or let transport errors silently disappear. The design goal is model-visible recovery for errors the model can act on, and fail-closed runtime handling for errors it cannot repair.
  -> tests/runtime/run/test_single_calls.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/run/test_stops.py::test_protocol_error_fails_the_run_with_a_clear_message
  -> tests/runtime/run/test_tracing.py::test_failed_call_and_cancelled_run_set_error_type
"""  # noqa: E501

# Tool results are untrusted input.
UNTRUSTED_INPUT = r"""
untrusted-input-1 Keep tool output inside tool-result/function-output/screenshot/result blocks; do not paste it into system messages or unlabeled user text.
  -> tests/runtime/test_adversarial.py::test_tool_output_stays_in_its_result
untrusted-input-2 Preserve provenance: tool name, call ID, safe source URI or file path, timestamp, truncation/filtering status, and approval decision where relevant.
  -> tests/runtime/test_adversarial.py::test_events_and_journal_have_the_complete_record
  -> tests/runtime/run/test_loop.py::test_complete_run_with_one_tool_call
untrusted-input-3 Redact secrets and private data before returning output to the model unless the task explicitly requires model reasoning over that data and the runtime is authorized to expose it.
  -> tests/runtime/run/test_single_calls.py::test_secrets_are_redacted_in_results_and_records
  -> tests/runtime/run/test_single_calls.py::test_secrets_are_redacted_in_progress
untrusted-input-4 Bound output size and shape. Prefer structured, minimal results over raw payloads when the model only needs a few fields.
  -> tests/runtime/run/test_single_calls.py::test_long_output_keeps_head_and_tail
  -> tests/runtime/test_adversarial.py::test_flood_of_progress_and_output_is_limited
untrusted-input-5 If output contains instructions that conflict with system/developer/user policy, treat them as adversarial content, not commands.
  -> tests/runtime/test_adversarial.py::test_simulated_model_ignores_instructions_in_results
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_instructions_in_a_page_have_no_effect
"""  # noqa: E501

# Loops that SDKs and providers manage.
SDK_LOOPS = r"""
sdk-loops-1 Anthropic Tool Runner can run tools, append results, wrap errors, manage conversation state, and stop after a configured iteration count.
  -> tests/scenarios/test_sdk_helpers.py::test_sdk_tool_loop_runs_three_steps
  -> tests/runtime/run/test_stops.py::test_turn_limit_stops_the_run
sdk-loops-2 OpenAI Agents SDK and Responses tooling can attach function tools, hosted tools, hosted MCP tools, and specialist agents as tools.
  -> tests/runtime/run/test_loop.py::test_agent_as_a_tool_has_its_own_policy
  -> tests/features/test_mcp_connectors.py::test_a_responses_mcp_tool_becomes_an_anthropic_mcp_server
sdk-loops-3 Vercel AI SDK models tools with input schemas, optional execute, strict mode, approval requests, multi-step stopping, and lifecycle callbacks.
  -> tests/runtime/run/test_loop.py::test_step_stops_before_execution
  -> tests/runtime/run/test_run_approvals.py::test_later_answer_pauses_the_run
  -> tests/runtime/run/test_tracing.py::test_run_turns_and_calls_are_spans
sdk-loops-4 Anthropic/OpenAI tool search and MCP discovery load large catalogs just in time.
  -> tests/runtime/search/test_deferred_tools.py::test_above_the_limit_only_search_and_always_tools_are_declared
  -> tests/gateway/emulation/test_tool_search.py::test_upstream_with_native_search_is_not_emulated
sdk-loops-5 Anthropic programmatic tool calling and code execution with MCP move loops, filtering, and data transfer into a code execution environment.
  -> tests/gateway/emulation/test_programs.py::test_program_suspends_for_client_calls_and_resumes
  -> tests/scenarios/test_code_execution.py::test_twenty_calls_take_one_turn
sdk-loops-6 OpenAI/Anthropic/Gemini computer-use tools move execution into a UI harness with screenshot-grounded actions and updated visual state.
  -> tests/features/computer_use/test_calls.py::test_calls_arrive_in_the_format_of_the_client
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_task_in_another_vendor_format
sdk-loops-7 Gemini Interactions API beta moves more continuity and observability into typed server-side steps.
  -> tests/scenarios/test_sdk_state.py::test_interactions_continue_from_a_previous_interaction_id
  -> tests/scenarios/test_background_streams.py::test_interaction_is_streamed_by_its_id_and_resumed
sdk-loops-8 These displace boilerplate loop code in common cases. They do not displace the need to understand ID pairing, model-visible state, validation, authorization, approval, prompt-injection boundaries, loop caps, trace persistence, and when to take over manually.
  -> tests/runtime/run/test_single_calls.py::test_call_errors_are_results_for_the_model
  -> tests/requirements/test_contracts.py::test_results_carry_the_exact_id_of_their_call
  -> tests/runtime/test_adversarial.py::test_approval_of_another_call_is_ignored
"""  # noqa: E501

# Differences between MCP 2025-11-25 and 2026-07-28.
MCP_VERSIONS = r"""
mcp-versions-1 Protocol-level HTTP sessions and Mcp-Session-Id are removed in the RC direction; applications can still keep state through explicit model-visible handles such as basket_id or browser_id.
  -> tests/runtime/mcp/test_server.py::test_newer_version_uses_headers_without_sessions
  -> tests/runtime/mcp/test_server.py::test_older_version_uses_handshake_and_session
mcp-versions-2 initialize / notifications/initialized are removed; protocol version, client identity, and capabilities move into request _meta.
  -> tests/runtime/mcp/test_toolset.py::test_newer_server_receives_no_handshake
  -> tests/runtime/mcp/test_toolset.py::test_older_server_never_receives_newer_messages
mcp-versions-3 server/discover becomes the up-front capability/version discovery RPC.
  -> tests/runtime/mcp/test_toolset.py::test_newer_server_receives_no_handshake
  -> tests/runtime/mcp/test_server.py::test_tool_list_has_a_ttl_in_the_newer_version_only
mcp-versions-4 Streamable HTTP POST requests add routability headers such as Mcp-Method and Mcp-Name.
  -> tests/runtime/mcp/test_server.py::test_newer_version_uses_headers_without_sessions
mcp-versions-5 Cacheable list/read results add ttlMs and cacheScope (public or private).
  -> tests/runtime/mcp/test_toolset.py::test_tool_list_is_cached_until_it_expires
  -> tests/runtime/mcp/test_server.py::test_tool_list_has_a_ttl_in_the_newer_version_only
mcp-versions-6 Resource-not-found shifts from custom -32002 to JSON-RPC -32602 (Invalid Params).
  -> tests/runtime/mcp/test_toolset.py::test_unknown_tool_is_a_protocol_error_with_either_code
  -> tests/runtime/mcp/test_server.py::test_unlisted_methods_are_not_found
"""  # noqa: E501

# Checklist for an integration.
VERIFICATION = r"""
verification-1 Every tool declaration has a precise name, description, input contract, and execution locus.
  -> tests/requirements/test_contracts.py::test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper
  -> tests/runtime/test_function_tool.py::test_decorator_options_are_applied
verification-2 Tool-call and tool-result messages/items are paired by the provider's correct ID field; OpenAI Responses uses call_id, not the output item id.
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_responses_pairs_by_call_id_not_by_item_id
  -> tests/requirements/test_contracts.py::test_results_carry_the_exact_id_of_their_call
verification-3 OpenAI Responses integrations preserve response.output, append function_call_output with the matching call_id, and preserve reasoning items for reasoning models.
  -> tests/requirements/test_contracts.py::test_continue_request_responses_keeps_all_output_items_with_reasoning
verification-4 OpenAI custom-tool integrations distinguish JSON-schema function tools from grammar-constrained text tools and validate Lark/regex input before execution.
  -> tests/acceptance/test_names_custom.py::test_cu_1_the_flat_and_the_nested_form_are_one_tool
  -> tests/runtime/calls/test_validation.py::test_grammar_error_names_the_position
  -> tests/runtime/calls/test_validation.py::test_regex_grammar_must_match_the_complete_text
verification-5 Anthropic integrations place tool_result blocks immediately after the assistant tool_use message and put tool-result blocks first in the user content array.
  -> tests/acceptance/test_order.py::test_or_3_nothing_is_inserted_before_the_results
  -> tests/requirements/test_contracts.py::test_continue_request_anthropic_keeps_the_blocks_and_answers_in_call_order
verification-6 Gemini integrations pass back function-call IDs and required thought signatures when manually constructing history or using REST.
  -> tests/requirements/test_contracts.py::test_continue_request_gemini_keeps_ids_and_signatures_of_the_model
verification-7 Gemini Interactions integrations treat previous_interaction_id as beta provider-managed continuation, re-specify current-turn tools/system/config as needed, and account for storage/retention limits.
  -> tests/requirements/test_contracts.py::test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings
  -> tests/test_tool_cycle.py::test_previous_interaction_id_is_reported_elsewhere
  -> tests/requirements/test_requirements.py::test_a_stored_interaction_expires
verification-8 Strict/provider schema mode is enabled deliberately where supported, but runtime validation, authorization, and side-effect policy still happen before execution.
  -> tests/acceptance/test_schema.py::test_sc_13_a_tool_that_is_not_strict_says_so_to_responses
  -> tests/runtime/run/test_single_calls.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/run/test_single_calls.py::test_calls_are_denied_without_rule_and_approver
verification-9 Streaming code aggregates deltas and handles partial/invalid JSON before dispatch.
  -> tests/acceptance/test_streaming.py::test_st_15_arguments_that_parse_early_are_not_final
  -> tests/acceptance/test_arguments.py::test_ar_7_truncated_arguments_are_marked_and_not_repaired
verification-10 MCP integrations name the implemented version, validate outputSchema/structuredContent where present, and distinguish protocol errors from execution errors.
  -> tests/runtime/mcp/test_toolset.py::test_structured_content_is_validated
  -> tests/runtime/mcp/test_toolset.py::test_tool_failure_is_an_output_and_protocol_failure_an_error
  -> tests/cli/test_mcp.py::test_list_prints_servers_states_and_tools
verification-11 MCP 2026-07-28 RC behavior is version-gated and not applied to stable 2025-11-25 deployments by accident.
  -> tests/runtime/mcp/test_toolset.py::test_older_server_never_receives_newer_messages
  -> tests/runtime/mcp/test_toolset.py::test_pinned_version_is_required
verification-12 Tool search/deferred loading keeps the search surface non-deferred, authorizes discovered tools before execution, and preserves normal ID/result pairing after loading.
  -> tests/acceptance/test_server_tools.py::test_sv_6_tool_search_keeps_its_exact_shape
  -> tests/runtime/search/test_deferred_tools.py::test_finding_a_tool_does_not_allow_it
  -> tests/gateway/emulation/test_tool_search.py::test_gateway_search_appears_as_the_clients_own
verification-13 Programmatic tool calling runs generated code only in an approved execution environment with allowed callers, resource and egress limits, container timeout/expiration handling, approval gates, and validation of distilled results.
  -> tests/acceptance/test_server_tools.py::test_sv_9_a_tool_that_only_code_may_call_is_refused
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_limits_are_enforced
  -> tests/gateway/emulation/test_programs.py::test_direct_call_of_a_program_only_tool_is_denied
  -> tests/gateway/emulation/test_programs.py::test_expired_program_times_out
  -> tests/scenarios/test_code_execution.py::test_calls_from_code_follow_the_policy
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_huge_value_is_not_returned_to_the_model
verification-14 Computer-use/browser-control integrations isolate the UI environment, declare display dimensions accurately, handle coordinate scaling, execute only supported actions, return updated screenshots/results, and require approval for high-impact actions.
  -> tests/runtime/tools/browser/test_toolset.py::test_only_allowed_actions_are_declared_and_accepted
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_each_run_has_its_own_browser
  -> tests/runtime/tools/browser/chromium/test_display.py::test_declared_size_equals_screenshot_size
  -> tests/runtime/tools/browser/chromium/test_display.py::test_click_hits_what_the_screenshot_shows
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_task_in_native_vendor_format
  -> tests/runtime/tools/browser/chromium/test_consent.py::test_buying_needs_approval
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_safety_check_is_not_acknowledged_without_a_person
verification-15 Tool results from external sources are treated as untrusted data, kept in tool-result channels, bounded, redacted where needed, and recorded with provenance.
  -> tests/runtime/test_adversarial.py::test_tool_output_stays_in_its_result
  -> tests/runtime/run/test_single_calls.py::test_long_output_keeps_head_and_tail
  -> tests/runtime/run/test_single_calls.py::test_secrets_are_redacted_in_results_and_records
  -> tests/runtime/test_adversarial.py::test_events_and_journal_have_the_complete_record
  -> tests/runtime/run/test_run_records.py::test_result_is_truncated_redacted_and_recorded_with_its_source
verification-16 SDK-managed loops have explicit max iterations/stop conditions, approval hooks, trace capture, and a manual takeover path.
  -> tests/runtime/run/test_stops.py::test_turn_limit_stops_the_run
  -> tests/runtime/run/test_loop.py::test_step_stops_before_execution
  -> tests/runtime/run/test_tracing.py::test_run_turns_and_calls_are_spans
verification-17 Logs include a replayable transcript or structured trace without secrets.
  -> tests/requirements/test_requirements.py::test_a_recorded_run_is_replayed_and_holds_no_secret
  -> tests/runtime/run/test_single_calls.py::test_secrets_are_redacted_in_results_and_records
  -> tests/runtime/run/test_run_records.py::test_run_replays_from_its_record_which_has_no_secrets
"""  # noqa: E501

# Rules of each provider's wire format.
PROVIDER_RULES = r"""
anthropic-rules-1 Do: Use `tools: [{ name, input_schema }]` with correct parameter names (e.g., `read_file.absolute_path`).
  -> tests/requirements/test_contracts.py::test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper
  -> tests/requirements/test_examples.py::test_an_example_survives_translation_and_back
anthropic-rules-2 Do: Insert tool results as a new user message with `{ type: "tool_result", tool_use_id }`.
  -> tests/requirements/test_contracts.py::test_format_tool_result_anthropic
anthropic-rules-3 Do: Keep IDs consistent: `tool_result.tool_use_id` must match the prior `tool_use.id`.
  -> tests/requirements/test_contracts.py::test_results_carry_the_exact_id_of_their_call
anthropic-rules-4 Do: Put global instructions in the `system` field when applicable.
  -> tests/requirements/test_contracts.py::test_system_text_moves_to_the_system_field_of_each_protocol
anthropic-rules-5 Do: Treat `tool_result.content` as text only; summarize binary outputs.
  -> tests/requirements/test_contracts.py::test_binary_results_can_be_summarized_as_text
  -> tests/features/test_result_media.py::test_a_summary_is_one_line_of_text
  -> tests/features/test_result_media.py::test_media_are_sent_natively_or_replaced_by_a_line_of_text
anthropic-rules-6 Don't: Send tool outputs as assistant text or mix into the same assistant message as `tool_use`.
  -> tests/requirements/test_contracts.py::test_format_tool_results_returns_the_continuation
anthropic-rules-7 Don't: Use `file_path` for `read_file` (use `absolute_path`).
  -> tests/requirements/test_examples.py::test_an_example_survives_translation_and_back
anthropic-rules-8 Don't: Send Chat/Responses-style `tool` role messages; Anthropic uses `tool_result` content blocks.
  -> tests/requirements/test_contracts.py::test_format_tool_result_anthropic
responses-rules-1 Do: Send tool calls as `input[]` items `{ type: "function_call", call_id, name, arguments }` (arguments JSON string).
  -> tests/requirements/test_contracts.py::test_continue_request_responses_keeps_all_output_items_with_reasoning
responses-rules-2 Do: Send tool results as `input[]` items `{ type: "function_call_output", call_id, output }`.
  -> tests/requirements/test_contracts.py::test_format_tool_result_responses
responses-rules-3 Do: Include function tools in `tools[]`; include supported non-function tools like `{ type: "local_shell" }`, `{ type: "web_search" }` when enabled.
  -> tests/requirements/test_contracts.py::test_tools_that_are_not_functions_stay_with_responses_and_are_reported_to_chat
responses-rules-4 Do: Use the `instructions` string for system-like guidance.
  -> tests/requirements/test_contracts.py::test_system_text_moves_to_the_system_field_of_each_protocol
responses-rules-5 Don't: Send tool outputs as Chat-style `tool` role messages.
  -> tests/requirements/test_contracts.py::test_format_tool_result_responses
responses-rules-6 Don't: Embed binary content in outputs; summarize instead.
  -> tests/requirements/test_contracts.py::test_binary_results_can_be_summarized_as_text
  -> tests/features/test_result_media.py::test_a_summary_is_one_line_of_text
  -> tests/features/test_result_media.py::test_media_are_sent_natively_or_replaced_by_a_line_of_text
responses-rules-7 Don't: Put tools under Chat’s `{ type: "function", function: {...} }` shape only—Responses supports broader tool types.
  -> tests/requirements/test_contracts.py::test_format_tools_responses_flattens_the_wrapper
  -> tests/requirements/test_contracts.py::test_tools_that_are_not_functions_stay_with_responses_and_are_reported_to_chat
chat-rules-1 Do: Provide tools as `[{ type: "function", function: { name, parameters } }]`.
  -> tests/requirements/test_contracts.py::test_format_tools_openai_is_a_pass_through
chat-rules-2 Do: Emit tool calls inside an assistant message’s `tool_calls[]` array; send results as a `tool` role message with `tool_call_id`.
  -> tests/requirements/test_contracts.py::test_continue_request_chat_appends_the_message_and_tool_messages
chat-rules-3 Do: Pass arguments as a JSON string in `function.arguments`.
  -> tests/requirements/test_requirements.py::test_arguments_are_always_a_json_string
  -> tests/acceptance/test_arguments.py::test_ar_1_missing_arguments_are_an_empty_object
chat-rules-4 Do: Prepend system content as `{ role: "system", content: "..." }` in `messages[]`.
  -> tests/requirements/test_contracts.py::test_system_text_moves_to_the_system_field_of_each_protocol
chat-rules-5 Don't: Use `input[]` or Responses event/item types.
  -> tests/requirements/test_contracts.py::test_continue_request_chat_appends_the_message_and_tool_messages
chat-rules-6 Don't: Include non-function tools in `tools[]`.
  -> tests/requirements/test_contracts.py::test_tools_that_are_not_functions_stay_with_responses_and_are_reported_to_chat
chat-rules-7 Don't: Return binary payloads in the tool role message; summarize or use a dedicated mechanism/tool.
  -> tests/requirements/test_contracts.py::test_binary_results_can_be_summarized_as_text
  -> tests/features/test_result_media.py::test_a_summary_is_one_line_of_text
  -> tests/features/test_result_media.py::test_media_are_sent_natively_or_replaced_by_a_line_of_text
gemini-rules-1 Do: Expose tools via `config.tools: [{ functionDeclarations: [...] }]` with `parametersJsonSchema`.
  -> tests/requirements/test_contracts.py::test_config_of_the_gemini_sdks_is_decoded_but_never_encoded
  -> tests/requirements/test_contracts.py::test_format_tools_gemini_declares_functions_with_their_json_schema
gemini-rules-2 Do: Handle model tool calls from `parts[]` where a part contains `functionCall`.
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_gemini_reads_function_call_parts
gemini-rules-3 Do: Inject tool results as a new user message with a `functionResponse` part (ID must match the `functionCall.id`).
  -> tests/requirements/test_contracts.py::test_format_tool_result_gemini_comes_from_the_user_with_the_id_of_the_call
gemini-rules-4 Do: Include `inlineData` (base64) next to the `functionResponse` for binary outputs.
  -> tests/requirements/test_contracts.py::test_binary_results_stand_beside_the_result_for_older_gemini_models
gemini-rules-5 Do: Put system instructions in `config.systemInstruction`.
  -> tests/requirements/test_contracts.py::test_config_of_the_gemini_sdks_is_decoded_but_never_encoded
gemini-rules-6 Don't: Send `functionResponse` in model parts; results always come from the user side.
  -> tests/requirements/test_contracts.py::test_format_tool_result_gemini_comes_from_the_user_with_the_id_of_the_call
  -> tests/acceptance/test_order.py::test_or_8_nothing_stands_beside_the_results
gemini-rules-7 Don't: Use Chat/Responses containers (`messages[]`/`input[]`); Gemini uses `contents[]` with parts.
  -> tests/requirements/test_contracts.py::test_config_of_the_gemini_sdks_is_decoded_but_never_encoded
gemini-rules-8 Don't: Rename parameters incorrectly (e.g., `read_file` expects `absolute_path`; `write_file` expects `file_path`).
  -> tests/requirements/test_contracts.py::test_parameters_keep_their_names
"""  # noqa: E501, RUF001

# Contract of a protocol adapter.
ADAPTER_CONTRACT = r"""
adapter-contract-1 `parseModelToolCalls(rawModelResponse) -> ToolCall[]`
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_returns_the_fields_of_the_contract
adapter-contract-2 `buildToolResultMessages(toolCalls, toolOutputs) -> ProtocolSpecificContinuation`
  -> tests/requirements/test_contracts.py::test_format_tool_results_returns_the_continuation
adapter-contract-3 Parsing should be strict:
  -> tests/test_tool_cycle.py::test_call_of_a_truncated_response_is_incomplete
  -> tests/test_tool_cycle.py::test_strict_parsing_accepts_a_complete_call
adapter-contract-4 Chat: accept `finish_reason === "tool_calls"` + `message.tool_calls`.
  -> tests/test_tool_cycle.py::test_strict_parsing_requires_a_tool_stop_reason
adapter-contract-5 Responses: scan `response.output[]` for `type === "function_call"`.
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_responses_pairs_by_call_id_not_by_item_id
  -> tests/test_tool_cycle.py::test_call_of_a_truncated_response_is_incomplete
adapter-contract-6 Claude: scan `content[]` for `type === "tool_use"` and `stop_reason === "tool_use"`.
  -> tests/test_tool_cycle.py::test_strict_parsing_requires_a_tool_stop_reason
"""

# Translation to and from the internal format, by provider.
PROVIDER_TRANSLATION = r"""
provider-translation-1 | OpenAI | Standard | Pass-through | Same format |
  -> tests/requirements/test_contracts.py::test_format_tools_openai_is_a_pass_through
provider-translation-2 | Anthropic | Standard | Convert `parameters` → `input_schema` | Remove `type: "function"` wrapper |
  -> tests/requirements/test_contracts.py::test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper
provider-translation-3 | Ollama | Standard | Pass-through | Similar to OpenAI |
  -> tests/requirements/test_contracts.py::test_format_tools_ollama_and_openrouter_is_a_pass_through
provider-translation-4 | OpenRouter | Standard | Pass-through | OpenAI format |
  -> tests/requirements/test_contracts.py::test_format_tools_ollama_and_openrouter_is_a_pass_through
provider-translation-5 | OpenAI | `.choices[0].message.tool_calls[]` | `[{id, name, arguments}]` | arguments is JSON string |
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_openai_reads_the_first_choice
provider-translation-6 | Anthropic | `.content[]` select `type: "tool_use"` | `[{id, name, arguments}]` | Convert `input` to JSON string for `arguments` |
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_anthropic_reads_tool_use_blocks_and_returns_arguments_as_text
provider-translation-7 | Ollama | `.message.tool_calls[]` | `[{id, name, arguments}]` | Generate fake ID (no ID in response), arguments is JSON string |
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_ollama_generates_ids_and_returns_arguments_as_text
provider-translation-8 | OpenRouter | `.choices[0].message.tool_calls[]` | `[{id, name, arguments}]` | Same as OpenAI |
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_openrouter_matches_openai
provider-translation-9 | OpenAI | `{"role": "tool", "tool_call_id": id, "content": result}` | Standard |
  -> tests/requirements/test_contracts.py::test_format_tool_result_openai
provider-translation-10 | Anthropic | `{"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}` | Content blocks array |
  -> tests/requirements/test_contracts.py::test_format_tool_result_anthropic
provider-translation-11 | Ollama | `{"role": "tool", "tool_name": name, "content": result}` | Uses name, not ID |
  -> tests/requirements/test_contracts.py::test_format_tool_result_ollama_is_paired_by_name
provider-translation-12 | OpenRouter | `{"role": "tool", "tool_call_id": id, "content": result}` | Same as OpenAI |
  -> tests/requirements/test_contracts.py::test_format_tool_result_openrouter_matches_openai
"""  # noqa: E501

_TABLES = (
    FAILURE_MODES,
    INVARIANTS,
    RESPONSIBILITIES,
    EXECUTION_LOCATIONS,
    TOOL_SEARCH,
    PROGRAMMATIC_CALLS,
    COMPUTER_USE,
    SCHEMAS,
    PARALLEL_CALLS,
    STREAMED_CALLS,
    FAILURE_ENCODING,
    UNTRUSTED_INPUT,
    SDK_LOOPS,
    MCP_VERSIONS,
    VERIFICATION,
    PROVIDER_RULES,
    ADAPTER_CONTRACT,
    PROVIDER_TRANSLATION,
)

REQUIREMENTS: list[Requirement] = [requirement for table in _TABLES for requirement in parse_requirements(table)]
