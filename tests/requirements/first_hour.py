"""Stumbles of new users, each with the tests that rule it out."""

from tests.requirements.tables import Requirement, parse_requirements

STUMBLES: list[Requirement] = parse_requirements(r"""
FH-1 The quickstart of OpenAI's SDK for streams crashes on a chunk without choices.
  -> tests/gateway/exchange/test_chat_streams.py::test_sdk_quickstart_runs_on_every_upstream
FH-2 A number out of range in the configuration is a traceback.
  -> tests/gateway/server/test_launch.py::test_invalid_configuration_is_a_one_line_error
FH-3 An agent that can't be executed is a traceback.
  -> tests/cli/test_launch.py::test_program_that_cannot_run_is_a_one_line_error
FH-4 The error for a missing extra names another extra, so that installing it changes nothing.
  -> tests/test_installation.py::test_missing_module_of_an_extra_names_the_extra
FH-5 Losses of settings that nobody sent drown the others, and do not say which body they are about.
  -> tests/gateway/observability/test_recorded_answers.py::test_settings_that_the_provider_echoes_are_of_no_consequence
  -> tests/cli/test_journal.py::test_show_counts_losses_of_severity_info_unless_asked
FH-6 The loss report of an exchange without losses is a 404.
  -> tests/gateway/server/test_endpoints.py::test_report_of_an_exchange_without_losses_is_empty
FH-7 Recording needs a configuration file, and lacks what the provider answered.
  -> tests/gateway/server/test_launch.py::test_bodies_of_one_start_can_be_recorded_with_the_providers_answer
FH-8 There is no place for a user's own providers and default model.
  -> tests/cli/test_ask.py::test_variable_is_the_default_of_the_model_option
  -> tests/gateway/config/test_loading.py::test_project_file_takes_precedence_key_by_key
FH-9 A misspelled model is answered by another one, and nothing names that.
  -> tests/gateway/exchange/test_routing.py::test_error_suggests_names_that_the_providers_listed
  -> tests/gateway/server/test_launch.py::test_serve_works_without_keys_and_stops_on_a_signal
FH-10 The lists of models that clients show are empty.
  -> tests/upstream/models/test_model_lists.py::test_list_of_each_protocol_is_read
  -> tests/gateway/exchange/test_routing.py::test_listed_names_are_those_that_lead_to_the_model
FH-11 Errors in the configuration have no line, and unknown keys no suggestion.
  -> tests/gateway/test_config.py::test_invalid_keys_are_named
FH-12 A rule for a tool that does not exist is accepted, and so is a model of no provider.
  -> tests/cli/test_suggestions.py::test_rule_that_names_no_tool_is_refused
  -> tests/cli/test_suggestions.py::test_unknown_names_are_errors_with_suggestions
FH-13 A server that does not run is noted nowhere, and one wrong key twice.
  -> tests/gateway/server/test_launch.py::test_dead_ollama_is_noted_once
  -> tests/cli/test_launch.py::test_provider_that_cannot_be_reached_is_named_before_the_agent_starts
  -> tests/cli/test_doctor.py::test_all_checks_pass_with_every_protocol
FH-14 Of a long error, only the first line is shown.
  -> tests/cli/test_ask.py::test_error_of_a_call_is_shown_whole
FH-15 The prompt returns without saying that the line was no answer, and echoes what is typed while a tool runs.
  -> tests/cli/test_ask.py::test_line_that_is_no_answer_is_named_before_the_next_prompt
  -> tests/cli/test_ask.py::test_typing_while_a_call_runs_is_not_echoed
FH-16 Lists ignore the width of the terminal, and have empty rows.
  -> tests/cli/test_terminal_output.py::test_no_line_is_wider_than_the_terminal
  -> tests/cli/test_terminal_output.py::test_rows_take_one_line_and_are_aligned
  -> tests/cli/test_mcp.py::test_serve_over_stdio_applies_rules
FH-17 An empty body is translated, and a file without servers imported, without a word.
  -> tests/cli/test_suggestions.py::test_empty_body_is_refused
  -> tests/cli/test_suggestions.py::test_import_without_servers_is_refused
FH-18 Commands that report have no JSON output.
  -> tests/cli/test_json_output.py::test_json_has_the_documented_shape
  -> tests/cli/test_journal.py::test_replay_to_another_protocol
FH-19 The error for a port in use says neither who uses it nor what to do.
  -> tests/gateway/server/test_launch.py::test_port_in_use_is_a_one_line_error
  -> tests/gateway/server/test_launch.py::test_another_toolwire_on_the_port_is_named
FH-20 The help of command groups is cut off.
  -> tests/cli/test_help.py::test_summaries_in_group_help_are_whole
FH-21 Completion exists but is mentioned nowhere, and knows no values.
  -> tests/cli/test_completion.py::test_script_of_each_shell_is_printed
  -> tests/cli/test_completion.py::test_values_complete
FH-22 An agent does not know the context window of its model, and its sessions can't be resumed.
  -> tests/cli/test_launch.py::test_agent_is_configured_for_the_gateway
  -> tests/cli/test_launch.py::test_sessions_and_settings_of_a_project_are_kept
FH-23 The gateway prints other variables than the guide.
  -> tests/gateway/server/test_launch.py::test_variables_printed_at_start_are_those_of_the_guides
FH-24 Messages have to be read twice.
  -> tests/cli/test_messages.py::test_message
FH-25 A variable that is not set stops commands that do not need it.
  -> tests/gateway/config/test_unset_variables.py::test_requests_to_the_provider_fail_with_the_reason_and_others_do_not
FH-26 An agent silently uses a gateway that was started long ago.
  -> tests/cli/test_doctor.py::test_gateway_that_launch_would_use_is_named
  -> tests/cli/test_launch.py::test_running_gateway_on_the_simulator_is_named_if_only_this_terminal_has_providers
FH-27 An agent retries for minutes, without a word, if its key is rejected.
  -> tests/cli/test_launch.py::test_secret_of_a_configured_key_is_taken_from_the_environment
  -> tests/gateway/exchange/test_upstream_failures.py::test_early_failure_is_an_error_in_the_clients_protocol
FH-28 An option of the agent is refused without a hint at `--`.
  -> tests/cli/test_launch.py::test_option_of_the_agent_before_the_dashes_is_explained
FH-29 Examples can't be copied into a file or a shell.
  -> tests/documentation/test_examples.py::test_python_blocks_can_be_pasted
FH-30 A recorded request of an agent scrolls everything else off the screen.
  -> tests/cli/test_terminal_output.py::test_long_bodies_are_shortened_on_a_terminal
FH-31 The simulator answers to a misspelled provider.
  -> tests/cli/test_models.py::test_provider_that_the_simulator_lacks_is_an_error
FH-32 An agent requests models that no provider serves, and its own error does not help.
  -> tests/cli/test_launch.py::test_agent_whose_own_models_nobody_serves_is_named_before_it_starts
FH-33 Lines break in the middle of words, and so do commands to copy.
  -> tests/cli/test_terminal_output.py::test_run_is_wrapped_at_words_and_its_commands_can_be_copied
  -> tests/cli/test_help.py::test_lines_fit_80_columns
FH-34 A setting with the name of another framework, or a tool that is in no list, is refused without a hint.
  -> tests/runtime/run/test_model_settings.py::test_unknown_settings_and_tools_are_errors_with_suggestions
  -> tests/runtime/run/test_model_settings.py::test_tools_that_are_no_list_are_an_error
FH-35 A replay that fails lists every field of the earlier answer as removed, and its own error among them.
  -> tests/cli/test_journal.py::test_replay_shows_changed_provider_behavior
FH-36 A server on localhost that does not run is an unknown host, or its address is named twice.
  -> tests/upstream/test_transport.py::test_refusal_of_every_address_of_a_name_is_described_once
  -> tests/cli/test_doctor.py::test_unreachable_provider_is_a_problem
FH-37 An MCP server that a person starts says nothing, and its misspelled rules are accepted.
  -> tests/cli/test_terminal_output.py::test_mcp_server_that_a_person_starts_says_whom_it_waits_for
  -> tests/cli/test_suggestions.py::test_rule_of_an_mcp_server_that_names_no_tool_is_refused
FH-38 The text of a run that fails just ends.
  -> tests/runtime/run/test_run_streams.py::test_text_of_a_failed_run_ends_with_its_error
FH-39 A resumed run does nothing, and its stream can neither be awaited nor has it a text.
  -> tests/runtime/run/test_run_streams.py::test_resumed_run_is_finished_with_one_call
  -> tests/runtime/run/test_run_streams.py::test_stream_can_be_awaited_for_its_run
  -> tests/runtime/run/test_run_streams.py::test_attributes_of_a_run_are_explained_at_its_stream
FH-40 A step without `await` shows an empty state, and an agent in `with` fails only at its end.
  -> tests/runtime/run/test_run_streams.py::test_step_that_is_not_awaited_shows_no_state
  -> tests/runtime/run/test_run_streams.py::test_agent_in_asynchronous_code_needs_async_with
FH-41 Ctrl-C does not end a program while a tool hangs.
  -> tests/runtime/test_thread_call.py::test_interrupt_ends_a_program_whose_tool_hangs
FH-42 A tool in a process of its own runs the script a second time, or can't be imported.
  -> tests/runtime/test_process_call.py::test_script_without_the_guard_is_refused_before_anything_runs_twice
  -> tests/runtime/test_process_call.py::test_functions_that_no_process_can_import_are_refused_where_defined
  -> tests/runtime/test_process_call.py::test_function_of_a_program_without_a_file_is_refused
FH-43 A value of another type fails in the middle of a run, or counts as true.
  -> tests/runtime/test_option_values.py::test_option_of_an_agent
  -> tests/runtime/test_option_values.py::test_model_of_another_type
  -> tests/runtime/test_option_values.py::test_option_of_a_tool
  -> tests/runtime/test_option_values.py::test_option_of_a_run
  -> tests/runtime/test_option_values.py::test_part_of_an_agent
FH-44 Results of calls in another form are a `KeyError`.
  -> tests/test_tool_cycle.py::test_outputs_of_another_form_are_errors_that_show_the_form
  -> tests/test_tool_cycle.py::test_options_of_another_type_are_errors_that_say_what_to_write
FH-45 A misspelt option of a translation or of a scripted model is ignored.
  -> tests/translation/test_options.py::test_unknown_value_of_an_option_is_an_error_that_names_the_known_ones
  -> tests/translation/test_options.py::test_options_of_streams_are_checked_before_the_first_chunk
  -> tests/test_testing.py::test_misspelt_failures_and_stop_reasons_are_refused
FH-46 An option of the agent that is passed to a run is refused with a misleading hint, or none.
  -> tests/runtime/test_first_mistakes.py::test_mistake_is_a_type_error_that_says_what_to_write
FH-47 The options of the decorator of tools are shown nowhere, and a wrong type names neither tool nor parameter.
  -> tests/runtime/test_first_mistakes.py::test_signature_of_the_decorator_shows_its_options
  -> tests/runtime/test_first_mistakes.py::test_unsupported_type_is_an_error_with_its_tool_and_parameter
FH-48 The tools of one vendor have no public type, and one that no provider would get is accepted.
  -> tests/runtime/test_native_tools.py::test_vendors_tool_is_declared_to_its_vendor_only
  -> tests/runtime/test_native_tools.py::test_tool_that_no_provider_would_get_is_an_error
FH-49 Examples that import an SDK fail for lack of it.
  -> tests/documentation/test_first_steps.py::test_package_is_named_before_the_examples_that_import_it
FH-50 Type checkers refuse the guides' programs, since a usage may be None and an approver's answer has no type.
  -> tests/documentation/test_example_types.py::test_type_checker_accepts_the_examples
  -> tests/runtime/run/test_stops.py::test_run_without_a_response_has_an_empty_usage
FH-51 Names that the guides import are not in the reference, which says that such names may change.
  -> tests/documentation/test_site.py::test_names_that_examples_import_are_in_the_reference
FH-52 An example prints tracebacks, although all is well.
  -> tests/documentation/test_examples.py::test_python_block_runs
FH-53 A misspelt limit is refused without the right name.
  -> tests/runtime/test_option_values.py::test_misspelt_option_is_an_error_with_the_nearest_one
FH-54 A request given for a request, or a key of another type, is ignored or fails far inside.
  -> tests/translation/test_options.py::test_unknown_value_of_an_option_is_an_error_that_names_the_known_ones
  -> tests/translation/test_options.py::test_options_of_streams_are_checked_before_the_first_chunk
  -> tests/translation/test_options.py::test_keys_of_envelopes_are_a_list_of_bytes
FH-55 A scripted turn with a part of another type fails only in the run, or never.
  -> tests/test_testing.py::test_parts_of_turns_of_another_type_are_refused
FH-70 A misspelled deny rule protects nothing, silently: in options, in the configuration, in Python.
  -> tests/cli/test_suggestions.py::test_rule_with_an_unknown_argument_is_refused
  -> tests/cli/test_suggestions.py::test_rules_are_checked_beside_mcp_servers
  -> tests/cli/test_mcp.py::test_misspelled_rule_for_a_tool_of_a_server_is_named
  -> tests/cli/test_doctor.py::test_misspelled_rules_are_problems
  -> tests/gateway/server/test_launch.py::test_misspelled_rules_and_expired_keys_are_noted
  -> tests/gateway/rounds/test_route_tools.py::test_misspelled_rules_are_logged_once
  -> tests/runtime/test_rule_checks.py::test_rule_with_an_argument_that_its_tool_lacks_is_an_error
  -> tests/runtime/test_rule_checks.py::test_restriction_of_an_unknown_tool_is_a_warning
FH-71 The doctor is content with settings that the gateway refuses to start with, and the refusal does not name them.
  -> tests/cli/test_doctor.py::test_file_that_serve_refuses_to_create_is_a_problem
  -> tests/cli/test_doctor.py::test_database_without_common_keys_and_missing_script_are_problems
  -> tests/cli/test_doctor.py::test_damaged_usage_is_a_problem
FH-72 A request that is alone may exceed the remaining dollars, as documented, but not the remaining tokens.
  -> tests/gateway/keys/test_usage_limits.py::test_request_alone_may_exceed_the_tokens_that_are_left
FH-73 A key whose every request is refused is named by nothing before, and the error does not name the missing extra.
  -> tests/gateway/keys/test_key_check.py::test_key_that_allows_nothing_is_named
  -> tests/gateway/keys/test_key_check.py::test_missing_prices_are_named_with_the_extra
  -> tests/gateway/keys/test_key_check.py::test_doctor_names_keys_that_are_refused
  -> tests/gateway/server/test_launch.py::test_misspelled_rules_and_expired_keys_are_noted
FH-74 In the console, Enter presses the button that was clicked last, instead of opening the exchange that j selected.
  -> tests/gateway/console/chromium/test_views.py::test_enter_opens_the_exchange_that_j_selected
FH-75 The lines that the console offers to copy have no key, although the gateway requires one.
  -> tests/gateway/console/chromium/test_page.py::test_lines_to_copy_have_a_key_if_one_is_required
FH-100 A default model of no provider passes `doctor` and `config trust`, and the error of `serve` has no line.
  -> tests/cli/test_doctor.py::test_whatever_serve_refuses_is_a_problem
  -> tests/cli/test_doctor.py::test_default_model_may_be_a_route_an_alias_or_a_model_that_a_server_lists
  -> tests/cli/test_ask.py::test_default_model_of_no_provider_is_named_with_its_place
  -> tests/cli/test_config.py::test_trust_reads_the_file_as_commands_do_over_the_users
  -> tests/gateway/server/test_launch.py::test_alias_of_no_provider_is_noted
FH-101 The error for a misspelled provider advises to set a default, which would not help, or to use a broken alias.
  -> tests/gateway/exchange/test_routing.py::test_error_advises_a_default_only_where_one_would_answer
  -> tests/gateway/exchange/test_routing.py::test_error_for_an_alias_names_it_but_does_not_advise_to_use_it
  -> tests/cli/test_doctor.py::test_aliases_are_checked_on_the_simulator
FH-102 An agent retries for a minute, without a word, if a gateway that already runs can't reach the provider.
  -> tests/cli/test_launch.py::test_provider_that_a_running_gateway_cannot_reach_is_named_before_the_agent_starts
  -> tests/gateway/keys/test_client_keys.py::test_key_sees_only_the_providers_of_its_models
FH-103 The call that the simulator proposes is repeated as text if opencode quotes it.
  -> tests/upstream/simulator/test_model.py::test_quoted_request_of_a_command_line_is_exactly_that_call
FH-104 The error of an endpoint that the simulator lacks does not say so.
  -> tests/gateway/exchange/test_native_endpoints.py::test_simulator_without_the_endpoint_is_named
FH-105 A session resumed with the command of the guide continues on another model.
  -> tests/cli/test_launch.py::test_commands_that_resume_a_session_name_its_model
FH-106 The installation of a quick start is refused by the system's pip.
  -> tests/documentation/test_first_steps.py::test_quick_starts_install_into_an_environment
FH-107 Examples fail for lack of an extra that the page names only later.
  -> tests/documentation/test_first_steps.py::test_extra_is_named_before_the_examples_that_need_it
FH-108 A message that users meet is missing in the troubleshooting page.
  -> tests/documentation/test_first_steps.py::test_troubleshooting_has_the_message
""")
