"""What the seed documents ask for, line by line, each with its tests.

An entry is a line number, the text of the line without its bullet, and under it its places: node ids of tests."""

from typing import NamedTuple

# Every failure mode stands on one line of its document.
FAILURE_MODES = r"""
9 OpenAI Responses output items mistaken for Chat Completions tool messages
  -> tests/requirements/test_contracts.py::test_build_tool_result_messages_gives_the_continuation
9 function_call item id confused with call_id pairing key
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_responses_pairs_by_call_id_not_by_item_id
9 custom text-tool inputs treated as JSON-schema object arguments
  -> tests/acceptance/test_names_custom.py::test_cu_2_a_custom_tool_is_lowered_and_its_call_raised_again
9 tool-result IDs omitted or mismatched
  -> tests/requirements/test_contracts.py::test_the_models_own_id_is_attached_back_exactly
9 Anthropic tool_result blocks inserted in the wrong message position
  -> tests/acceptance/test_order.py::test_or_4_results_share_one_turn_and_an_unanswered_call_gets_a_placeholder
9 Gemini function-call IDs or thought signatures omitted in manual history
  -> tests/requirements/test_contracts.py::test_continue_request_gemini_keeps_ids_and_signatures_of_the_model
  -> tests/acceptance/test_ids_without.py::test_id_9_an_id_that_was_issued_is_on_call_and_result
9 Gemini Interactions previous_interaction_id treated as permanent hidden memory instead of provider-supported continuation with beta and retention limits
  -> tests/test_tool_cycle.py::test_previous_interaction_id_is_reported_elsewhere
  -> tests/requirements/test_contracts.py::test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings
9 computer-use actions executed without screenshot/result feedback, coordinate mapping, isolation, approval, or page-content prompt-injection handling
  -> tests/runtime/tools/browser/chromium/test_display.py::test_click_hits_what_the_screenshot_shows
  -> tests/runtime/tools/browser/chromium/test_actions.py::test_sessions_share_nothing
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_task_in_another_vendor_format
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_actions_without_rule_are_not_performed
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_instructions_in_a_page_have_no_effect
9 programmatic tool calling treated as unsandboxed model code execution or as a universal syntax rule
  -> tests/acceptance/test_server_tools.py::test_sv_9_a_tool_that_only_code_may_call_is_refused
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped
9 large tool catalogs loaded eagerly instead of discovered/deferred just in time
  -> tests/runtime/search/test_deferred_tools.py::test_above_the_limit_only_search_and_always_tools_are_declared
9 MCP 2026-07-28 release-candidate behavior treated as current stable protocol
  -> tests/runtime/mcp/test_toolset.py::test_older_server_never_receives_newer_messages
  -> tests/runtime/mcp/test_toolset.py::test_pinned_version_is_required
9 partial streamed arguments executed before validation
  -> tests/acceptance/test_streaming.py::test_st_15_arguments_that_parse_early_are_not_final
  -> tests/runtime/run/test_loop.py::test_call_errors_are_results_for_the_model
9 MCP protocol errors collapsed with tool execution errors
  -> tests/runtime/mcp/test_toolset.py::test_tool_failure_is_an_output_and_protocol_failure_an_error
  -> tests/acceptance/test_mcp.py::test_er_4_a_failed_mcp_tool_is_a_failure_in_the_record_and_to_the_model
9 untrusted tool output promoted into instruction channels
  -> tests/acceptance/test_order.py::test_or_2_results_around_a_text_stay_together
  -> tests/runtime/test_adversarial.py::test_tool_output_stays_in_its_result
9 private runtime state assumed to be model-visible
  -> tests/runtime/test_adversarial.py::test_record_fields_do_not_reach_the_model
"""  # noqa: E501

INVARIANTS = r"""
44 Tool declaration is model input The model sees a bounded catalog with names, descriptions, and input contracts, or a discovery surface that can expose that catalog just in time. The model invents unavailable tools or malformed arguments.
  -> tests/requirements/test_contracts.py::test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper
  -> tests/runtime/test_function_tool.py::test_signature_becomes_a_schema
  -> tests/scenarios/test_code_execution.py::test_a_catalog_above_the_limit_is_behind_a_search
45 Tool request is structured intent The model emits a typed block/item/action, not direct execution authority. Runtime code treats free text as permission to act.
  -> tests/requirements/test_contracts.py::test_parse_model_tool_calls_gives_what_the_contract_asks
  -> tests/requirements/test_contracts.py::test_parse_model_tool_calls_finds_none_in_an_answer_of_text
  -> tests/requirements/test_requirements.py::test_001_45_text_that_spells_a_call_runs_nothing
  -> tests/runtime/test_adversarial.py::test_call_written_as_text_never_runs
46 Runtime validates before execution Tool name, arguments, grammar, authorization, idempotency, and side-effect policy are checked before dispatch. Malformed, unauthorized, or destructive calls execute because the model asked.
  -> tests/runtime/run/test_loop.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/run/test_loop.py::test_denied_call_names_the_rule_and_does_not_run
47 Result is paired by ID Every result carries the request ID: tool_use_id, tool_call_id, call_id, Gemini function-call id, or framework equivalent. The continuation turn cannot prove which result belongs to which request.
  -> tests/requirements/test_contracts.py::test_the_models_own_id_is_attached_back_exactly
  -> tests/test_tool_cycle.py::test_repeated_call_has_unique_and_stable_ids
48 Continuation preserves required output The next request includes prior assistant tool-call output and provider-required reasoning, thinking, response, or interaction artifacts. The provider rejects the request or the model loses the context needed to continue.
  -> tests/requirements/test_contracts.py::test_continue_request_responses_keeps_the_whole_output_with_its_reasoning
  -> tests/requirements/test_contracts.py::test_continue_request_anthropic_keeps_the_blocks_and_answers_in_call_order
  -> tests/requirements/test_contracts.py::test_continue_request_chat_appends_the_message_and_tool_messages
  -> tests/requirements/test_contracts.py::test_continue_request_gemini_keeps_ids_and_signatures_of_the_model
  -> tests/requirements/test_contracts.py::test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings
  -> tests/requirements/test_contracts.py::test_continue_request_ollama_answers_calls_without_ids_by_name_and_order
49 Tool output stays in a data channel Results remain in tool-result/function-output/screenshot/result blocks and are treated as untrusted data. Prompt injection inside retrieved content can be promoted into instructions.
  -> tests/runtime/test_adversarial.py::test_tool_output_stays_in_its_result
  -> tests/runtime/test_adversarial.py::test_simulated_model_ignores_instructions_in_results
50 Loop termination is explicit Runtime caps steps and exits when the model emits a non-tool answer or hits a guardrail. A model can re-call tools indefinitely.
  -> tests/runtime/run/test_loop.py::test_turn_limit_stops_the_run
  -> tests/runtime/run/test_loop.py::test_repeated_call_stops_the_run_before_executing
"""  # noqa: E501

RESPONSIBILITIES = r"""
303 Tool-surface shaping - expose relevant tools or provide a discovery/search mechanism for large catalogs.
  -> tests/runtime/search/test_deferred_tools.py::test_above_the_limit_only_search_and_always_tools_are_declared
304 Schema and grammar validation - validate JSON-schema arguments, grammar-constrained text, output schemas, and provider-specific strict-mode compatibility.
  -> tests/runtime/calls/test_validation.py::test_errors_name_path_and_keyword
  -> tests/runtime/calls/test_validation.py::test_grammar_error_names_the_position
  -> tests/runtime/run/test_loop.py::test_output_is_validated_against_its_schema
  -> tests/codec/schema/test_laws.py::test_strict_schema_meets_the_strict_rules
  -> tests/acceptance/test_arguments.py::test_ar_13_a_tool_with_an_open_map_is_not_marked_strict
305 Provider-continuity preservation - preserve response output items, reasoning items, thinking blocks, function-call IDs, Gemini function-call IDs, interaction IDs, or SDK runner state required by the next turn.
  -> tests/requirements/test_contracts.py::test_continue_request_responses_keeps_the_whole_output_with_its_reasoning
  -> tests/requirements/test_contracts.py::test_continue_request_anthropic_keeps_the_blocks_and_answers_in_call_order
  -> tests/requirements/test_contracts.py::test_continue_request_gemini_keeps_ids_and_signatures_of_the_model
  -> tests/requirements/test_contracts.py::test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings
306 Dispatch - route validated calls to local code, network APIs, MCP servers, provider-hosted tools, subagents, humans, sandboxes, or UI harnesses.
  -> tests/scenarios/test_agents.py::test_the_same_task_has_the_same_effects_on_every_protocol
  -> tests/runtime/run/test_loop.py::test_agent_as_a_tool_has_its_own_policy
  -> tests/scenarios/test_code_execution.py::test_twenty_calls_take_one_turn
307 Authorization and approval - pause or deny destructive, costly, privileged, high-impact, externally visible, or suspicious actions.
  -> tests/runtime/run/test_loop.py::test_approvals_are_requested_before_any_call_of_the_batch_runs
  -> tests/runtime/test_policy.py::test_only_workspace_reads_are_allowed_by_default
308 Execution policy - timeouts, retries, rate limits, idempotency, parallelism limits, container/resource limits, egress limits, credential scope, and cancellation.
  -> tests/runtime/run/test_loop.py::test_tool_is_stopped_at_its_timeout
  -> tests/runtime/run/test_loop.py::test_only_idempotent_tools_are_retried_with_the_same_key
  -> tests/runtime/run/test_loop.py::test_rate_limit_is_enforced
  -> tests/runtime/run/test_loop.py::test_independent_calls_run_in_parallel_with_results_in_order
  -> tests/runtime/run/test_loop.py::test_cancelling_a_run_cancels_its_tools
  -> tests/runtime/tools/test_run_shell_command.py::test_memory_is_limited_per_process_and_in_total
  -> tests/runtime/tools/test_run_shell_command.py::test_environment_has_no_secrets
  -> tests/runtime/tools/test_web_fetch.py::test_no_notation_of_a_private_address_is_fetched
  -> tests/runtime/tools/test_run_shell_command.py::test_a_fork_bomb_is_stopped
  -> tests/runtime/mcp/test_security.py::test_changed_url_gets_no_tokens_of_the_old_one
  -> tests/cli/test_ask.py::test_s_15_yes_runs_no_command_outside_a_sandbox
309 Result encoding - format outputs as tool-result/function-output/screenshot/result messages paired by ID, with error flags where appropriate.
  -> tests/requirements/test_contracts.py::test_build_tool_result_messages_gives_the_continuation
  -> tests/requirements/test_contracts.py::test_an_error_is_told
310 Untrusted-output handling - keep results in data channels, redact where needed, bound output size, attach provenance, and avoid instruction promotion.
  -> tests/runtime/run/test_loop.py::test_long_output_keeps_head_and_tail
  -> tests/runtime/run/test_loop.py::test_secrets_are_redacted_in_results_and_records
311 Transport/session security - for MCP and remote tools, validate origins, authenticate connections, bind local servers safely, handle resumability, and fail closed on unsupported protocol versions.
  -> tests/runtime/mcp/test_server.py::test_foreign_origin_or_host_is_rejected
  -> tests/runtime/mcp/test_server.py::test_requests_without_a_key_are_rejected
  -> tests/cli/test_mcp.py::test_serve_without_keys_only_on_loopback
  -> tests/runtime/mcp/test_http_transport.py::test_lost_session_is_reopened_and_the_call_resent
  -> tests/runtime/mcp/test_server.py::test_unknown_protocol_version_is_refused
  -> tests/runtime/mcp/test_stream_resumption.py::test_interrupted_stream_resumes_after_its_last_event
312 Loop control - cap turns/steps, detect runaway loops, and know when manual control is required.
  -> tests/runtime/run/test_loop.py::test_turn_limit_stops_the_run
  -> tests/runtime/run/test_loop.py::test_repeated_call_stops_the_run_before_executing
  -> tests/runtime/run/test_loop.py::test_step_stops_before_execution
  -> tests/runtime/run/test_limits.py::test_q_21_cycle_of_turns_is_detected
313 Observability - record tool name, request ID, validated arguments, approval decision, start/end times, result summary, error class, retries, continuation message ID, and provider/version.
  -> tests/runtime/run/test_loop.py::test_complete_run_with_one_tool_call
  -> tests/runtime/test_adversarial.py::test_events_and_journal_have_the_complete_record
  -> tests/runtime/run/test_tracing.py::test_run_turns_and_calls_are_spans
  -> tests/runtime/run/test_run_records.py::test_call_record_has_all_audit_fields
314 Audit and persistence - store the transcript or structured trace so runs are replayable without leaking secrets.
  -> tests/requirements/test_requirements.py::test_001_314_367_a_recorded_run_is_replayed_and_holds_no_secret
  -> tests/runtime/run/test_recorded_run.py::test_replay_executes_nothing_and_reports_differences
  -> tests/cli/test_runs.py::test_replay_against_recorded_results_executes_nothing
"""  # noqa: E501

EXECUTION_LOCATIONS = r"""
202 Client/user-defined tool Your runtime executes local code, service calls, or human workflows. Validation, authorization, dispatch, result encoding, retries, loop caps, logs.
  -> tests/runtime/run/test_loop.py::test_complete_run_with_one_tool_call
  -> tests/runtime/run/test_loop.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/run/test_loop.py::test_turn_limit_stops_the_run
203 Provider-hosted/server tool The model provider executes an approved hosted tool such as web search, code execution, file search, computer use, or hosted MCP. Tool choice policy, approval settings, observability, output trust boundaries, returned artifacts, and data-retention fit.
  -> tests/acceptance/test_server_tools.py::test_sv_11_results_that_the_provider_made_stay_with_their_calls
  -> tests/acceptance/test_server_tools.py::test_sv_4_every_built_in_tool_is_mapped_or_reported
  -> tests/features/test_mcp_connectors.py::test_one_that_asks_a_person_is_refused
204 MCP server tool An MCP host/client discovers tools with tools/list, invokes tools/call, and translates results into the provider's format. MCP transport/session security, server trust, tool approval, result shaping, and version pinning.
  -> tests/runtime/mcp/test_toolset.py::test_tools_are_listed_and_called
  -> tests/runtime/mcp/test_security.py::test_every_path_to_a_tool_applies_the_policy
  -> tests/runtime/mcp/test_hostile_servers.py::test_policy_ignores_server_annotations
205 SDK-managed runner An SDK wraps the loop and may execute tools, append results, and stop after configured iterations. Correct definitions, approval gates, error policy, trace capture, max iterations, and knowing when to take over manually.
  -> tests/scenarios/test_sdk_helpers.py::test_a_loop_of_three_steps
  -> tests/runtime/run/test_loop.py::test_turn_limit_stops_the_run
  -> tests/runtime/run/test_loop.py::test_step_stops_before_execution
206 Programmatic sandbox Generated code calls allowed tools, loops, filters, and distills intermediate results before returning a compact observation. Sandbox isolation, allowed callers, egress limits, credential scope, provider resource limits, provenance, and validation of distilled output.
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped
  -> tests/runtime/sandbox/code/test_tool.py::test_sequential_calls_return_only_the_last_value
  -> tests/runtime/sandbox/code/test_tool.py::test_run_code_and_direct_only_tools_are_excluded
207 Computer-use/browser-control harness The model returns screenshot-grounded UI actions; the harness clicks, types, scrolls, waits, drags, moves, or captures screenshots. Isolated environment, action allowlist, coordinate mapping, screenshot/result feedback, high-impact approvals, prompt-injection handling, and trace capture.
  -> tests/runtime/tools/browser/test_toolset.py::test_only_allowed_actions_are_declared_and_accepted
  -> tests/runtime/tools/browser/chromium/test_display.py::test_click_hits_what_the_screenshot_shows
  -> tests/runtime/tools/browser/chromium/test_consent.py::test_buying_needs_approval
"""  # noqa: E501

TOOL_SEARCH = r"""
214 Provider-hosted tool search Mark functions/MCP servers as deferred; include tool_search; provider searches and loads a subset. Deferring the search tool itself, hiding always-needed tools, or assuming discovery authorizes execution.
  -> tests/runtime/search/test_deferred_tools.py::test_native_search_gets_all_tools_deferred_without_losses
  -> tests/runtime/search/test_deferred_tools.py::test_above_the_limit_only_search_and_always_tools_are_declared
  -> tests/runtime/search/test_deferred_tools.py::test_finding_a_tool_does_not_allow_it
215 Client-executed tool search Model emits a search call; your runtime performs BM25, semantic, regex, policy-filtered, filesystem, or tenant-specific lookup and returns definitions. Returning untrusted or unauthorized tools, leaking private metadata, or bypassing approval gates.
  -> tests/gateway/emulation/test_tool_search.py::test_gateway_search_appears_as_the_clients_own
  -> tests/runtime/search/test_deferred_tools.py::test_denied_tools_are_neither_declared_nor_found
  -> tests/runtime/search/test_index.py::test_unusable_tools_are_skipped_before_the_limit
216 MCP discovery Host/client lists tools from MCP servers and shapes the provider-facing catalog just in time. Treating discovery as trust, flooding context with every schema, or failing to cache/version definitions deliberately.
  -> tests/runtime/mcp/test_toolset.py::test_tool_list_is_cached_until_it_expires
  -> tests/runtime/mcp/test_toolset.py::test_only_configured_tools_are_offered
  -> tests/runtime/mcp/test_hostile_servers.py::test_policy_ignores_server_annotations
217 Code execution with MCP Tool definitions are exposed as filesystem/code APIs inside a sandbox, so the model reads only the needed files and calls tools from code. Confusing sandbox state with model-visible state, omitting sandbox policy, or letting intermediate data leak into logs.
  -> tests/runtime/sandbox/code/test_tool.py::test_code_can_search_and_describe_tools
  -> tests/runtime/sandbox/code/test_tool.py::test_many_tools_are_searchable_but_not_listed
  -> tests/requirements/test_requirements.py::test_001_229_code_calls_a_tool_of_an_mcp_server_and_only_its_result_reaches_the_model
"""  # noqa: E501

PROGRAMMATIC_CALLS = r"""
226 Client-side direct execution The application exposes functions to generated code and runs that code locally. Safe arbitrary-code execution, callable allowlist, arguments, side effects, returned data, and logs.
  -> tests/scenarios/test_code_execution.py::test_what_code_calls_is_decided_on_as_anything_else
  -> tests/scenarios/test_code_execution.py::test_code_is_not_told_of_what_no_call_of_it_would_be_allowed
227 Self-managed sandbox Generated code runs in a restricted container and calls tools through an explicit bridge. Isolation, egress policy, resource limits, IPC/tool-call protocol, credentials, audit logs, and result validation.
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_limits_are_enforced
  -> tests/runtime/sandbox/code/test_tool.py::test_tampered_steps_are_rejected
228 Provider-managed programmatic tool calling Provider manages the sandbox and invocation channel for allowed tools. Allowed-caller policy, tool restrictions, data retention, approval policy, trace capture, and returned artifacts.
  -> tests/gateway/emulation/test_programs.py::test_direct_call_of_a_program_only_tool_is_denied
  -> tests/gateway/emulation/test_programs.py::test_expired_program_times_out
  -> tests/acceptance/test_server_tools.py::test_sv_10_callers_of_another_vendor_are_never_mapped_silently
229 Code execution with MCP Code calls MCP tools or MCP-like adapters to avoid sending every intermediate result through model context. MCP server trust, credential scope, sandbox-to-MCP permissions, explicit state handles, and final result shaping.
  -> tests/requirements/test_requirements.py::test_001_229_code_calls_a_tool_of_an_mcp_server_and_only_its_result_reaches_the_model
  -> tests/requirements/test_requirements.py::test_001_229_what_no_rule_allows_is_denied_to_code_too
  -> tests/gateway/emulation/test_programs.py::test_mcp_tools_are_not_callable_by_programs
"""  # noqa: E501

COMPUTER_USE = r"""
242 Screenshot/UI state Model-visible observation grounding the next action. Capture declared dimensions, redact sensitive regions when needed, preserve viewport/source provenance, and return fresh state after actions.
  -> tests/runtime/tools/browser/chromium/test_display.py::test_declared_size_equals_screenshot_size
  -> tests/runtime/tools/browser/chromium/test_redaction.py::test_redacted_elements_and_areas_are_black
  -> tests/runtime/tools/browser/chromium/test_actions.py::test_screenshot_shows_effects_of_the_click
243 Action batch Structured intent such as screenshot, click, double click, type, keypress, scroll, drag, mouse move, wait, or provider equivalent. Execute only supported actions, in order, with timeout/resource limits and approval before sensitive or externally visible effects.
  -> tests/runtime/tools/browser/test_toolset.py::test_only_allowed_actions_are_declared_and_accepted
  -> tests/runtime/tools/browser/chromium/test_page_events.py::test_refused_action_ends_the_batch_with_a_reason
  -> tests/runtime/tools/browser/chromium/test_page_events.py::test_unresponsive_page_is_closed
244 Coordinates Arguments whose frame is the screenshot or declared display. Keep display dimensions aligned with the actual image; handle downsampling, device-pixel-ratio, zoom, crop regions, and coordinate scaling.
  -> tests/runtime/tools/browser/chromium/test_display.py::test_click_hits_what_the_screenshot_shows
  -> tests/runtime/tools/browser/chromium/test_display.py::test_declared_size_equals_screenshot_size
  -> tests/features/computer_use/test_actions.py::test_a_point_on_a_screen_of_unknown_size_is_not_guessed
245 Page/screen content Tool output controlled by websites, apps, documents, emails, or images. Treat on-screen instructions as untrusted data, not user permission; stop or ask before credentials, purchases, account changes, phishing, or other high-impact actions.
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_instructions_in_a_page_have_no_effect
  -> tests/runtime/tools/browser/chromium/test_consent.py::test_page_text_is_only_an_observation
  -> tests/runtime/tools/browser/chromium/test_consent.py::test_secret_fields_need_approval
246 Continuation New screenshot/result after action execution. Pair it to the request (call_id, tool_use_id, or equivalent) and repeat until the model stops or a guardrail fires.
  -> tests/features/computer_use/test_calls.py::test_the_upstream_sees_its_own_calls_again_each_with_its_result
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_task_in_native_vendor_format
"""  # noqa: E501

SCHEMAS = r"""
254 Use constrained schemas: explicit type, required, enums where useful, bounded arrays/strings where possible, and clear descriptions for each argument.
  -> tests/runtime/test_function_tool.py::test_signature_becomes_a_schema
255 Enable provider strict/schema-adherent modes deliberately when available. OpenAI strict mode requires schemas that can be normalized into the supported subset; if omitted in Responses, the API attempts strict-compatible normalization when possible and can fall back to non-strict. Chat Completions remains non-strict by default.
  -> tests/acceptance/test_schema.py::test_sc_13_a_tool_that_is_not_strict_says_so_to_responses
  -> tests/acceptance/test_arguments.py::test_ar_13_a_tool_with_an_open_map_is_not_marked_strict
  -> tests/codec/schema/test_laws.py::test_strict_schema_meets_the_strict_rules
256 Still validate in the runtime. Provider strictness is version-specific, supports subsets of JSON Schema, and does not prove authorization, freshness, idempotency, or semantic safety.
  -> tests/runtime/run/test_loop.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/calls/test_validation.py::test_errors_name_path_and_keyword
  -> tests/runtime/run/test_loop.py::test_calls_are_denied_without_rule_and_approver
257 Recognize non-JSON argument contracts. OpenAI custom tools can accept grammar-constrained text input (lark or regex) instead of JSON-schema arguments; validate by grammar parsing and execution policy.
  -> tests/runtime/calls/test_validation.py::test_grammar_error_names_the_position
  -> tests/runtime/calls/test_validation.py::test_regex_grammar_must_match_the_complete_text
258 Treat output schemas as a separate contract. MCP 2025-11-25 supports outputSchema and structuredContent; clients should validate structured results when an output schema is declared.
  -> tests/runtime/mcp/test_toolset.py::test_structured_content_is_validated
  -> tests/runtime/mcp/test_toolset.py::test_missing_structured_content_is_an_error
  -> tests/runtime/run/test_loop.py::test_output_is_validated_against_its_schema
259 Do not put private or sensitive data in schema names, enum values, const values, examples, or regex patterns. Schemas are often cached and logged differently from message content.
  -> tests/codec/test_sensitive_data.py::test_sensitive_literals_in_tool_schemas_are_warned_about
"""  # noqa: E501

PARALLEL_CALLS = r"""
263 Protocols allow multiple tool-call blocks/items in one assistant turn. Those calls are an unordered batch. The runtime may execute them concurrently, sequentially, or in any order, but the model cannot condition one call in the batch on another call's result. Dependent calls must be sequential across turns.
  -> tests/runtime/run/test_loop.py::test_independent_calls_run_in_parallel_with_results_in_order
  -> tests/acceptance/test_parallel.py::test_pa_8_every_call_of_a_whole_response_is_kept
273 If a batched call turns out to depend on another result and fails naturally, return that failure as an error result; the model can reissue the dependent call on the next turn. When using Anthropic-style parallel tool results, send the batch's tool-result blocks in one continuation message and place result blocks before any explanatory text. When deterministic ordering matters more than latency, disable parallel calls through the provider's controls where available.
  -> tests/runtime/run/test_loop.py::test_call_errors_are_results_for_the_model
  -> tests/acceptance/test_order.py::test_or_4_results_share_one_turn_and_an_unanswered_call_gets_a_placeholder
"""  # noqa: E501

STREAMED_CALLS = r"""
277 Streaming changes when the runtime can observe a request, not the correctness contract. The safe rule is: aggregate argument deltas, parse and validate when the provider says the item/block is complete, then execute. Some providers expose fine-grained argument streaming where chunks arrive before server-side JSON buffering or validation; this reduces latency for large arguments but means clients must handle incomplete/invalid JSON and max_tokens cutoffs. Speculative execution is safe only when the call name, ID, and arguments are complete enough for the tool's idempotency and validation policy.
  -> tests/acceptance/test_streaming.py::test_st_15_arguments_that_parse_early_are_not_final
  -> tests/runtime/run/test_loop.py::test_calls_of_an_incomplete_response_never_run
  -> tests/test_tool_cycle.py::test_q_10_call_of_a_truncated_response_is_incomplete
"""  # noqa: E501

FAILURE_ENCODING = r"""
284 Tool execution failure Business/API rejection, timeout, permission denied, schema-valid input fails domain validation, dependency missing, tool-specific error Return a model-visible tool result with error content (is_error, isError, error object, or framework equivalent). The model can retry, choose another tool, ask the user, or stop.
  -> tests/runtime/run/test_loop.py::test_call_errors_are_results_for_the_model
  -> tests/requirements/test_contracts.py::test_an_error_is_told
  -> tests/acceptance/test_mcp.py::test_er_4_a_failed_mcp_tool_is_a_failure_in_the_record_and_to_the_model
285 Protocol/transport/request-shape failure Malformed JSON-RPC, invalid message ordering, missing tool_call_id, wrong call_id, provider 400 from misplaced result blocks, lost MCP Streamable HTTP session, incompatible strict schema Runtime handles, retries, or fails closed outside the model when needed. If the model can recover, summarize the problem into a valid continuation; otherwise log the trace and stop safely.
  -> tests/runtime/mcp/test_toolset.py::test_tool_failure_is_an_output_and_protocol_failure_an_error
  -> tests/runtime/run/test_loop.py::test_protocol_error_fails_the_run_with_a_clear_message
  -> tests/runtime/mcp/test_http_transport.py::test_lost_session_is_reopened_and_the_call_resent
287 The runtime should not throw raw exceptions into the conversation or let transport errors silently disappear. The design goal is model-visible recovery for errors the model can act on, and fail-closed runtime handling for errors it cannot repair.
  -> tests/runtime/run/test_loop.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/run/test_loop.py::test_protocol_error_fails_the_run_with_a_clear_message
  -> tests/runtime/run/test_tracing.py::test_failed_call_and_cancelled_run_set_error_type
"""  # noqa: E501

UNTRUSTED_INPUT = r"""
293 Keep tool output inside tool-result/function-output/screenshot/result blocks; do not paste it into system messages or unlabeled user text.
  -> tests/runtime/test_adversarial.py::test_tool_output_stays_in_its_result
294 Preserve provenance: tool name, call ID, safe source URI or file path, timestamp, truncation/filtering status, and approval decision where relevant.
  -> tests/runtime/test_adversarial.py::test_events_and_journal_have_the_complete_record
  -> tests/runtime/run/test_loop.py::test_complete_run_with_one_tool_call
295 Redact secrets and private data before returning output to the model unless the task explicitly requires model reasoning over that data and the runtime is authorized to expose it.
  -> tests/runtime/run/test_loop.py::test_secrets_are_redacted_in_results_and_records
  -> tests/runtime/run/test_loop.py::test_secrets_are_redacted_in_progress
296 Bound output size and shape. Prefer structured, minimal results over raw payloads when the model only needs a few fields.
  -> tests/runtime/run/test_loop.py::test_long_output_keeps_head_and_tail
  -> tests/runtime/test_adversarial.py::test_flood_of_progress_and_output_is_limited
297 If output contains instructions that conflict with system/developer/user policy, treat them as adversarial content, not commands.
  -> tests/runtime/test_adversarial.py::test_simulated_model_ignores_instructions_in_results
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_instructions_in_a_page_have_no_effect
"""  # noqa: E501

SDK_LOOPS = r"""
322 Anthropic Tool Runner can run tools, append results, wrap errors, manage conversation state, and stop after a configured iteration count.
  -> tests/scenarios/test_sdk_helpers.py::test_a_loop_of_three_steps
  -> tests/runtime/run/test_loop.py::test_turn_limit_stops_the_run
323 OpenAI Agents SDK and Responses tooling can attach function tools, hosted tools, hosted MCP tools, and specialist agents as tools.
  -> tests/runtime/run/test_loop.py::test_agent_as_a_tool_has_its_own_policy
  -> tests/features/test_mcp_connectors.py::test_an_mcp_tool_of_responses_is_a_server_of_anthropic
324 Vercel AI SDK models tools with input schemas, optional execute, strict mode, approval requests, multi-step stopping, and lifecycle callbacks.
  -> tests/runtime/run/test_loop.py::test_step_stops_before_execution
  -> tests/runtime/run/test_loop.py::test_later_answer_pauses_the_run
  -> tests/runtime/run/test_tracing.py::test_run_turns_and_calls_are_spans
325 Anthropic/OpenAI tool search and MCP discovery load large catalogs just in time.
  -> tests/runtime/search/test_deferred_tools.py::test_above_the_limit_only_search_and_always_tools_are_declared
  -> tests/gateway/emulation/test_tool_search.py::test_upstream_with_native_search_is_not_emulated
326 Anthropic programmatic tool calling and code execution with MCP move loops, filtering, and data transfer into a code execution environment.
  -> tests/gateway/emulation/test_programs.py::test_program_suspends_for_client_calls_and_resumes
  -> tests/scenarios/test_code_execution.py::test_twenty_calls_take_one_turn
327 OpenAI/Anthropic/Gemini computer-use tools move execution into a UI harness with screenshot-grounded actions and updated visual state.
  -> tests/features/computer_use/test_calls.py::test_calls_come_in_the_clients_form
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_task_in_another_vendor_format
328 Gemini Interactions API beta moves more continuity and observability into typed server-side steps.
  -> tests/scenarios/test_sdk_state.py::test_interactions_go_on_from_an_id
  -> tests/scenarios/test_background_streams.py::test_an_interaction_is_streamed_by_its_id_and_resumed
330 These displace boilerplate loop code in common cases. They do not displace the need to understand ID pairing, model-visible state, validation, authorization, approval, prompt-injection boundaries, loop caps, trace persistence, and when to take over manually.
  -> tests/runtime/run/test_loop.py::test_call_errors_are_results_for_the_model
  -> tests/requirements/test_contracts.py::test_the_models_own_id_is_attached_back_exactly
  -> tests/runtime/test_adversarial.py::test_approval_of_another_call_is_ignored
"""  # noqa: E501

RELEASE_TRACK = r"""
338 Protocol-level HTTP sessions and Mcp-Session-Id are removed in the RC direction; applications can still keep state through explicit model-visible handles such as basket_id or browser_id.
  -> tests/runtime/mcp/test_server.py::test_newer_version_uses_headers_without_sessions
  -> tests/runtime/mcp/test_server.py::test_older_version_uses_handshake_and_session
339 initialize / notifications/initialized are removed; protocol version, client identity, and capabilities move into request _meta.
  -> tests/runtime/mcp/test_toolset.py::test_newer_server_receives_no_handshake
  -> tests/runtime/mcp/test_toolset.py::test_older_server_never_receives_newer_messages
340 server/discover becomes the up-front capability/version discovery RPC.
  -> tests/runtime/mcp/test_toolset.py::test_newer_server_receives_no_handshake
  -> tests/runtime/mcp/test_server.py::test_tool_list_has_a_ttl_in_the_newer_version_only
341 Streamable HTTP POST requests add routability headers such as Mcp-Method and Mcp-Name.
  -> tests/runtime/mcp/test_server.py::test_newer_version_uses_headers_without_sessions
342 Cacheable list/read results add ttlMs and cacheScope (public or private).
  -> tests/runtime/mcp/test_toolset.py::test_tool_list_is_cached_until_it_expires
  -> tests/runtime/mcp/test_server.py::test_tool_list_has_a_ttl_in_the_newer_version_only
343 Resource-not-found shifts from custom -32002 to JSON-RPC -32602 (Invalid Params).
  -> tests/runtime/mcp/test_toolset.py::test_unknown_tool_is_a_protocol_error_with_either_code
  -> tests/runtime/mcp/test_server.py::test_unlisted_methods_are_not_found
"""  # noqa: E501

VERIFICATION = r"""
351 Every tool declaration has a precise name, description, input contract, and execution locus.
  -> tests/requirements/test_contracts.py::test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper
  -> tests/runtime/test_function_tool.py::test_decorator_options_are_applied
352 Tool-call and tool-result messages/items are paired by the provider's correct ID field; OpenAI Responses uses call_id, not the output item id.
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_responses_pairs_by_call_id_not_by_item_id
  -> tests/requirements/test_contracts.py::test_the_models_own_id_is_attached_back_exactly
353 OpenAI Responses integrations preserve response.output, append function_call_output with the matching call_id, and preserve reasoning items for reasoning models.
  -> tests/requirements/test_contracts.py::test_continue_request_responses_keeps_the_whole_output_with_its_reasoning
354 OpenAI custom-tool integrations distinguish JSON-schema function tools from grammar-constrained text tools and validate Lark/regex input before execution.
  -> tests/acceptance/test_names_custom.py::test_cu_1_the_flat_and_the_nested_form_are_one_tool
  -> tests/runtime/calls/test_validation.py::test_grammar_error_names_the_position
  -> tests/runtime/calls/test_validation.py::test_regex_grammar_must_match_the_complete_text
355 Anthropic integrations place tool_result blocks immediately after the assistant tool_use message and put tool-result blocks first in the user content array.
  -> tests/acceptance/test_order.py::test_or_3_nothing_is_put_before_the_results
  -> tests/requirements/test_contracts.py::test_continue_request_anthropic_keeps_the_blocks_and_answers_in_call_order
356 Gemini integrations pass back function-call IDs and required thought signatures when manually constructing history or using REST.
  -> tests/requirements/test_contracts.py::test_continue_request_gemini_keeps_ids_and_signatures_of_the_model
357 Gemini Interactions integrations treat previous_interaction_id as beta provider-managed continuation, re-specify current-turn tools/system/config as needed, and account for storage/retention limits.
  -> tests/requirements/test_contracts.py::test_continue_request_interactions_keeps_the_steps_and_repeats_tools_and_settings
  -> tests/test_tool_cycle.py::test_previous_interaction_id_is_reported_elsewhere
  -> tests/requirements/test_requirements.py::test_001_357_an_interaction_is_kept_for_a_time_and_then_unknown
358 Strict/provider schema mode is enabled deliberately where supported, but runtime validation, authorization, and side-effect policy still happen before execution.
  -> tests/acceptance/test_schema.py::test_sc_13_a_tool_that_is_not_strict_says_so_to_responses
  -> tests/runtime/run/test_loop.py::test_call_errors_are_results_for_the_model
  -> tests/runtime/run/test_loop.py::test_calls_are_denied_without_rule_and_approver
359 Streaming code aggregates deltas and handles partial/invalid JSON before dispatch.
  -> tests/acceptance/test_streaming.py::test_st_15_arguments_that_parse_early_are_not_final
  -> tests/acceptance/test_arguments.py::test_ar_7_truncated_arguments_are_marked_and_not_mended
360 MCP integrations name the implemented version, validate outputSchema/structuredContent where present, and distinguish protocol errors from execution errors.
  -> tests/runtime/mcp/test_toolset.py::test_structured_content_is_validated
  -> tests/runtime/mcp/test_toolset.py::test_tool_failure_is_an_output_and_protocol_failure_an_error
  -> tests/cli/test_mcp.py::test_list_prints_servers_states_and_tools
361 MCP 2026-07-28 RC behavior is version-gated and not applied to stable 2025-11-25 deployments by accident.
  -> tests/runtime/mcp/test_toolset.py::test_older_server_never_receives_newer_messages
  -> tests/runtime/mcp/test_toolset.py::test_pinned_version_is_required
362 Tool search/deferred loading keeps the search surface non-deferred, authorizes discovered tools before execution, and preserves normal ID/result pairing after loading.
  -> tests/acceptance/test_server_tools.py::test_sv_6_tool_search_keeps_its_exact_shape
  -> tests/runtime/search/test_deferred_tools.py::test_finding_a_tool_does_not_allow_it
  -> tests/gateway/emulation/test_tool_search.py::test_gateway_search_appears_as_the_clients_own
363 Programmatic tool calling runs generated code only in an approved execution environment with allowed callers, resource and egress limits, container timeout/expiration handling, approval gates, and validation of distilled results.
  -> tests/acceptance/test_server_tools.py::test_sv_9_a_tool_that_only_code_may_call_is_refused
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_sandbox_can_not_be_escaped
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_limits_are_enforced
  -> tests/gateway/emulation/test_programs.py::test_direct_call_of_a_program_only_tool_is_denied
  -> tests/gateway/emulation/test_programs.py::test_expired_program_times_out
  -> tests/scenarios/test_code_execution.py::test_what_code_calls_is_decided_on_as_anything_else
  -> tests/runtime/sandbox/code/test_hostile_code.py::test_huge_value_is_not_returned_to_the_model
364 Computer-use/browser-control integrations isolate the UI environment, declare display dimensions accurately, handle coordinate scaling, execute only supported actions, return updated screenshots/results, and require approval for high-impact actions.
  -> tests/runtime/tools/browser/test_toolset.py::test_only_allowed_actions_are_declared_and_accepted
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_each_run_has_its_own_browser
  -> tests/runtime/tools/browser/chromium/test_display.py::test_declared_size_equals_screenshot_size
  -> tests/runtime/tools/browser/chromium/test_display.py::test_click_hits_what_the_screenshot_shows
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_task_in_native_vendor_format
  -> tests/runtime/tools/browser/chromium/test_consent.py::test_buying_needs_approval
  -> tests/runtime/tools/browser/chromium/test_vendor_protocols.py::test_safety_check_is_not_acknowledged_without_a_person
365 Tool results from external sources are treated as untrusted data, kept in tool-result channels, bounded, redacted where needed, and recorded with provenance.
  -> tests/runtime/test_adversarial.py::test_tool_output_stays_in_its_result
  -> tests/runtime/run/test_loop.py::test_long_output_keeps_head_and_tail
  -> tests/runtime/run/test_loop.py::test_secrets_are_redacted_in_results_and_records
  -> tests/runtime/test_adversarial.py::test_events_and_journal_have_the_complete_record
  -> tests/runtime/run/test_run_records.py::test_result_is_truncated_redacted_and_recorded_with_its_source
366 SDK-managed loops have explicit max iterations/stop conditions, approval hooks, trace capture, and a manual takeover path.
  -> tests/runtime/run/test_loop.py::test_turn_limit_stops_the_run
  -> tests/runtime/run/test_loop.py::test_step_stops_before_execution
  -> tests/runtime/run/test_tracing.py::test_run_turns_and_calls_are_spans
367 Logs include a replayable transcript or structured trace without secrets.
  -> tests/requirements/test_requirements.py::test_001_314_367_a_recorded_run_is_replayed_and_holds_no_secret
  -> tests/runtime/run/test_loop.py::test_secrets_are_redacted_in_results_and_records
  -> tests/runtime/run/test_run_records.py::test_run_replays_from_its_record_which_has_no_secrets
"""  # noqa: E501

DOS_AND_DONTS = r"""
50 Do: Use `tools: [{ name, input_schema }]` with correct parameter names (e.g., `read_file.absolute_path`).
  -> tests/requirements/test_contracts.py::test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper
  -> tests/requirements/test_examples.py::test_abroad_an_example_arrives_and_comes_back
51 Do: Insert tool results as a new user message with `{ type: "tool_result", tool_use_id }`.
  -> tests/requirements/test_contracts.py::test_format_tool_result_anthropic
52 Do: Keep IDs consistent: `tool_result.tool_use_id` must match the prior `tool_use.id`.
  -> tests/requirements/test_contracts.py::test_the_models_own_id_is_attached_back_exactly
53 Do: Put global instructions in the `system` field when applicable.
  -> tests/requirements/test_contracts.py::test_system_text_goes_where_each_protocol_has_it
54 Do: Treat `tool_result.content` as text only; summarize binary outputs.
  -> tests/requirements/test_contracts.py::test_binary_results_can_be_summed_up_in_text
  -> tests/features/test_result_media.py::test_a_summary_is_one_line_of_text
  -> tests/features/test_result_media.py::test_native_media_arrive_or_a_line_says_that_there_were_some
55 Don't: Send tool outputs as assistant text or mix into the same assistant message as `tool_use`.
  -> tests/requirements/test_contracts.py::test_build_tool_result_messages_gives_the_continuation
56 Don't: Use `file_path` for `read_file` (use `absolute_path`).
  -> tests/requirements/test_examples.py::test_abroad_an_example_arrives_and_comes_back
57 Don't: Send Chat/Responses-style `tool` role messages; Anthropic uses `tool_result` content blocks.
  -> tests/requirements/test_contracts.py::test_format_tool_result_anthropic
61 Do: Send tool calls as `input[]` items `{ type: "function_call", call_id, name, arguments }` (arguments JSON string).
  -> tests/requirements/test_contracts.py::test_continue_request_responses_keeps_the_whole_output_with_its_reasoning
62 Do: Send tool results as `input[]` items `{ type: "function_call_output", call_id, output }`.
  -> tests/requirements/test_contracts.py::test_format_tool_result_responses
63 Do: Include function tools in `tools[]`; include supported non-function tools like `{ type: "local_shell" }`, `{ type: "web_search" }` when enabled.
  -> tests/requirements/test_contracts.py::test_tools_that_are_not_functions_stay_with_responses_and_are_reported_to_chat
64 Do: Use the `instructions` string for system-like guidance.
  -> tests/requirements/test_contracts.py::test_system_text_goes_where_each_protocol_has_it
65 Don't: Send tool outputs as Chat-style `tool` role messages.
  -> tests/requirements/test_contracts.py::test_format_tool_result_responses
66 Don't: Embed binary content in outputs; summarize instead.
  -> tests/requirements/test_contracts.py::test_binary_results_can_be_summed_up_in_text
  -> tests/features/test_result_media.py::test_a_summary_is_one_line_of_text
  -> tests/features/test_result_media.py::test_native_media_arrive_or_a_line_says_that_there_were_some
67 Don't: Put tools under Chat’s `{ type: "function", function: {...} }` shape only—Responses supports broader tool types.
  -> tests/requirements/test_contracts.py::test_format_tools_responses_flattens_the_wrapper
  -> tests/requirements/test_contracts.py::test_tools_that_are_not_functions_stay_with_responses_and_are_reported_to_chat
71 Do: Provide tools as `[{ type: "function", function: { name, parameters } }]`.
  -> tests/requirements/test_contracts.py::test_format_tools_openai_is_a_pass_through
72 Do: Emit tool calls inside an assistant message’s `tool_calls[]` array; send results as a `tool` role message with `tool_call_id`.
  -> tests/requirements/test_contracts.py::test_continue_request_chat_appends_the_message_and_tool_messages
73 Do: Pass arguments as a JSON string in `function.arguments`.
  -> tests/requirements/test_requirements.py::test_000_73_arguments_are_a_json_string_whatever_is_in_them
  -> tests/acceptance/test_arguments.py::test_ar_1_no_arguments_are_an_empty_object
74 Do: Prepend system content as `{ role: "system", content: "..." }` in `messages[]`.
  -> tests/requirements/test_contracts.py::test_system_text_goes_where_each_protocol_has_it
75 Don't: Use `input[]` or Responses event/item types.
  -> tests/requirements/test_contracts.py::test_continue_request_chat_appends_the_message_and_tool_messages
76 Don't: Include non-function tools in `tools[]`.
  -> tests/requirements/test_contracts.py::test_tools_that_are_not_functions_stay_with_responses_and_are_reported_to_chat
77 Don't: Return binary payloads in the tool role message; summarize or use a dedicated mechanism/tool.
  -> tests/requirements/test_contracts.py::test_binary_results_can_be_summed_up_in_text
  -> tests/features/test_result_media.py::test_a_summary_is_one_line_of_text
  -> tests/features/test_result_media.py::test_native_media_arrive_or_a_line_says_that_there_were_some
81 Do: Expose tools via `config.tools: [{ functionDeclarations: [...] }]` with `parametersJsonSchema`.
  -> tests/requirements/test_contracts.py::test_the_config_of_geminis_sdks_is_read_and_only_contents_are_written
  -> tests/requirements/test_contracts.py::test_format_tools_gemini_declares_functions_with_their_json_schema
82 Do: Handle model tool calls from `parts[]` where a part contains `functionCall`.
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_gemini_reads_function_call_parts
83 Do: Inject tool results as a new user message with a `functionResponse` part (ID must match the `functionCall.id`).
  -> tests/requirements/test_contracts.py::test_format_tool_result_gemini_comes_from_the_user_with_the_id_of_the_call
84 Do: Include `inlineData` (base64) next to the `functionResponse` for binary outputs.
  -> tests/requirements/test_contracts.py::test_binary_results_stand_beside_the_result_for_older_models_of_gemini
85 Do: Put system instructions in `config.systemInstruction`.
  -> tests/requirements/test_contracts.py::test_the_config_of_geminis_sdks_is_read_and_only_contents_are_written
86 Don't: Send `functionResponse` in model parts; results always come from the user side.
  -> tests/requirements/test_contracts.py::test_format_tool_result_gemini_comes_from_the_user_with_the_id_of_the_call
  -> tests/acceptance/test_order.py::test_or_8_nothing_stands_beside_the_results
87 Don't: Use Chat/Responses containers (`messages[]`/`input[]`); Gemini uses `contents[]` with parts.
  -> tests/requirements/test_contracts.py::test_the_config_of_geminis_sdks_is_read_and_only_contents_are_written
88 Don't: Rename parameters incorrectly (e.g., `read_file` expects `absolute_path`; `write_file` expects `file_path`).
  -> tests/requirements/test_contracts.py::test_parameters_keep_their_names
"""  # noqa: E501, RUF001

ADAPTER_CONTRACT = r"""
11 `parseModelToolCalls(rawModelResponse) -> ToolCall[]`
  -> tests/requirements/test_contracts.py::test_parse_model_tool_calls_gives_what_the_contract_asks
12 `buildToolResultMessages(toolCalls, toolOutputs) -> ProtocolSpecificContinuation`
  -> tests/requirements/test_contracts.py::test_build_tool_result_messages_gives_the_continuation
209 Parsing should be strict:
  -> tests/test_tool_cycle.py::test_q_10_call_of_a_truncated_response_is_incomplete
  -> tests/test_tool_cycle.py::test_q_10_strict_parsing_accepts_a_complete_call
210 Chat: accept `finish_reason === "tool_calls"` + `message.tool_calls`.
  -> tests/test_tool_cycle.py::test_q_10_strict_parsing_requires_a_tool_stop_reason
211 Responses: scan `response.output[]` for `type === "function_call"`.
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_responses_pairs_by_call_id_not_by_item_id
  -> tests/test_tool_cycle.py::test_q_10_call_of_a_truncated_response_is_incomplete
212 Claude: scan `content[]` for `type === "tool_use"` and `stop_reason === "tool_use"`.
  -> tests/test_tool_cycle.py::test_q_10_strict_parsing_requires_a_tool_stop_reason
"""

FUNCTION_TABLES = r"""
256 | OpenAI | Standard | Pass-through | Same format |
  -> tests/requirements/test_contracts.py::test_format_tools_openai_is_a_pass_through
257 | Anthropic | Standard | Convert `parameters` → `input_schema` | Remove `type: "function"` wrapper |
  -> tests/requirements/test_contracts.py::test_format_tools_anthropic_renames_parameters_and_removes_the_wrapper
258 | Ollama | Standard | Pass-through | Similar to OpenAI |
  -> tests/requirements/test_contracts.py::test_format_tools_ollama_and_openrouter_is_a_pass_through
259 | OpenRouter | Standard | Pass-through | OpenAI format |
  -> tests/requirements/test_contracts.py::test_format_tools_ollama_and_openrouter_is_a_pass_through
265 | OpenAI | `.choices[0].message.tool_calls[]` | `[{id, name, arguments}]` | arguments is JSON string |
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_openai_reads_the_first_choice
266 | Anthropic | `.content[]` select `type: "tool_use"` | `[{id, name, arguments}]` | Convert `input` to JSON string for `arguments` |
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_anthropic_reads_tool_use_blocks_and_gives_arguments_as_text
267 | Ollama | `.message.tool_calls[]` | `[{id, name, arguments}]` | Generate fake ID (no ID in response), arguments is JSON string |
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_ollama_makes_ids_and_gives_arguments_as_text
268 | OpenRouter | `.choices[0].message.tool_calls[]` | `[{id, name, arguments}]` | Same as OpenAI |
  -> tests/requirements/test_contracts.py::test_parse_tool_calls_openrouter_is_as_openai
274 | OpenAI | `{"role": "tool", "tool_call_id": id, "content": result}` | Standard |
  -> tests/requirements/test_contracts.py::test_format_tool_result_openai
275 | Anthropic | `{"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}` | Content blocks array |
  -> tests/requirements/test_contracts.py::test_format_tool_result_anthropic
276 | Ollama | `{"role": "tool", "tool_name": name, "content": result}` | Uses name, not ID |
  -> tests/requirements/test_contracts.py::test_format_tool_result_ollama_goes_by_name
277 | OpenRouter | `{"role": "tool", "tool_call_id": id, "content": result}` | Same as OpenAI |
  -> tests/requirements/test_contracts.py::test_format_tool_result_openrouter_is_as_openai
"""  # noqa: E501


class Requirement(NamedTuple):
    document: str
    section: str
    line: int
    text: str
    tests: tuple[str, ...]


def _parse_requirements(document: str, section: str, table: str) -> list[Requirement]:
    found: list[Requirement] = []
    for row in table.strip().splitlines():
        if row.startswith("  -> "):
            found[-1] = found[-1]._replace(tests=(*found[-1].tests, row.removeprefix("  -> ")))
        else:
            number, text = row.split(" ", 1)
            found.append(Requirement(document, section, int(number), text, ()))
    return found


REQUIREMENTS: list[Requirement] = [
    *_parse_requirements("001", "failure modes", FAILURE_MODES),
    *_parse_requirements("001", "protocol invariants", INVARIANTS),
    *_parse_requirements("001", "the runtime's responsibilities", RESPONSIBILITIES),
    *_parse_requirements("001", "where execution happens", EXECUTION_LOCATIONS),
    *_parse_requirements("001", "tool search", TOOL_SEARCH),
    *_parse_requirements("001", "programmatic tool calling", PROGRAMMATIC_CALLS),
    *_parse_requirements("001", "computer use", COMPUTER_USE),
    *_parse_requirements("001", "strict schemas", SCHEMAS),
    *_parse_requirements("001", "parallel calls", PARALLEL_CALLS),
    *_parse_requirements("001", "streamed calls", STREAMED_CALLS),
    *_parse_requirements("001", "failure encoding", FAILURE_ENCODING),
    *_parse_requirements("001", "untrusted input", UNTRUSTED_INPUT),
    *_parse_requirements("001", "SDK-managed loops", SDK_LOOPS),
    *_parse_requirements("001", "MCP release track", RELEASE_TRACK),
    *_parse_requirements("001", "verification", VERIFICATION),
    *_parse_requirements("000", "do and don't", DOS_AND_DONTS),
    *_parse_requirements("003", "adapter contract", ADAPTER_CONTRACT),
    *_parse_requirements("004", "function tables", FUNCTION_TABLES),
]
