"""Failures that users of other gateways and SDKs reported, each with the acceptance test that rules it out."""

from tests.requirements.tables import Requirement, parse_requirements

FAILURES: list[Requirement] = parse_requirements(r"""
ID-1 Anthropic rejects a tool call id with characters outside `[a-zA-Z0-9_-]`.
  -> tests/acceptance/test_ids.py::test_id_1_illegal_ids_are_escaped_the_same_on_call_and_result
ID-2 An illegal tool call id is escaped on the call or on its result, but not on both, or not on the pass-through path.
  -> tests/acceptance/test_ids.py::test_id_2_illegal_ids_are_escaped_on_both_sides_and_reported_on_the_native_path
ID-3 A tool call id gets a new random alias in every request, although it was legal or already had one.
  -> tests/acceptance/test_ids.py::test_id_3_legal_ids_pass_unchanged_and_aliases_are_deterministic
ID-4 Two long ids are truncated to the same prefix, and their results are mixed up.
  -> tests/acceptance/test_ids.py::test_id_4_long_ids_with_a_common_prefix_do_not_collide
ID-5 Ids of a Chat Completions provider reach an Anthropic client unchanged, or lose the prefix that made them unique.
  -> tests/acceptance/test_ids.py::test_id_5_ids_of_a_chat_provider_return_to_it_unchanged
ID-6 The `tool_use_id` of an Anthropic result is ignored, and `tool_call_id` is sent empty.
  -> tests/acceptance/test_ids.py::test_id_6_the_result_is_paired_by_tool_use_id
ID-7 Gemini receives a `functionResponse` with an empty name, because the client sends only the id of the call.
  -> tests/acceptance/test_ids_without.py::test_id_7_results_carry_the_name_of_their_call_and_become_text_without_one
ID-8 A result for Gemini is named after the wrong call.
  -> tests/acceptance/test_ids_without.py::test_id_8_results_are_named_after_the_calls_they_answer
ID-9 The id that Gemini gave a `functionCall` is missing from the next request.
  -> tests/acceptance/test_ids_without.py::test_id_9_ids_from_the_provider_stand_on_call_and_result
ID-10 Calls of a protocol without ids get random ids, which differ when the history is sent again.
  -> tests/acceptance/test_ids_without.py::test_id_10_calls_without_ids_get_stable_ids_that_are_not_sent_back
ID-11 A streamed Chat call without an id never becomes an output item of Responses.
  -> tests/acceptance/test_ids.py::test_id_11_calls_without_an_id_get_one
ID-12 An empty string as the id of a call is taken for a new call.
  -> tests/acceptance/test_ids.py::test_id_12_empty_ids_count_as_missing
ID-13 A Responses stream changes the item id of a call between `added` and `done`, and the call is not recognized as the same.
  -> tests/acceptance/test_ids.py::test_id_13_items_whose_id_changes_are_one_call
ID-14 A provider repeats a call id in a later turn, and the later call overwrites the earlier one.
  -> tests/acceptance/test_ids.py::test_id_14_repeated_ids_are_paired_within_their_turn
ID-15 A message has the same call both as a `tool_use` block and in `tool_calls`, and the call is sent twice.
  -> tests/acceptance/test_ids.py::test_id_15_a_call_in_both_spellings_is_one_call
ID-16 Responses rejects item ids of another provider, because it checks their prefixes.
  -> tests/acceptance/test_ids.py::test_id_16_no_foreign_item_ids_reach_responses
ID-17 Parallel calls of one Ollama tool share one id, because Ollama has none.
  -> tests/acceptance/test_ids_without.py::test_id_17_parallel_calls_of_one_tool_get_distinct_ids_and_return_by_name
ID-18 Ollama cannot distinguish two calls of one tool, and the loss is not reported.
  -> tests/acceptance/test_ids_without.py::test_id_18_results_of_one_tool_stay_in_call_order_and_the_ambiguity_is_reported
OR-1 The text of a user turn is sent before its tool results, which must follow the calls directly.
  -> tests/acceptance/test_order.py::test_or_1_tool_messages_precede_the_text_of_the_user
OR-2 Text between two tool results separates them, and the provider rejects the request.
  -> tests/acceptance/test_order.py::test_or_2_results_around_a_text_stay_together
OR-3 A gateway inserts a reminder before the tool results of a turn, and Anthropic rejects it.
  -> tests/acceptance/test_order.py::test_or_3_nothing_is_inserted_before_the_results
OR-4 Anthropic rejects a turn because a `tool_use` has no `tool_result` directly after it.
  -> tests/acceptance/test_order.py::test_or_4_results_share_one_turn_and_unanswered_calls_get_a_placeholder
OR-5 A resumed session has two results for one call, and Anthropic accepts only one.
  -> tests/acceptance/test_order.py::test_or_5_of_two_results_the_last_replaces_the_first
OR-6 Parallel results are sent in random order.
  -> tests/acceptance/test_order.py::test_or_6_results_stand_in_call_order
OR-7 Each result for Gemini is a content of its own, and the counts of calls and responses differ.
  -> tests/acceptance/test_order.py::test_or_7_all_results_of_a_turn_are_in_one_content
OR-8 Text stands beside a `functionResponse`, and Gemini rejects it.
  -> tests/acceptance/test_order.py::test_or_8_nothing_stands_beside_the_results
OR-9 Text after a function call in the turn of the model breaks the pairing with its result.
  -> tests/acceptance/test_order.py::test_or_9_calls_come_last_in_the_turn_of_the_model
OR-10 Client calls and server calls of one Anthropic turn change their order.
  -> tests/acceptance/test_order.py::test_or_10_client_and_server_calls_keep_their_order
OR-11 Databricks rejects parallel calls, because it accepts a tool message only right after a message with that call alone.
  -> tests/acceptance/test_gateway_requests.py::test_or_11_each_result_follows_a_message_with_only_its_call
OR-12 A server call is dropped while its result stays in the history.
  -> tests/acceptance/test_order.py::test_or_12_server_calls_and_their_results_are_dropped_together
OR-13 Trimming the history leaves results without their calls, or results before their calls.
  -> tests/acceptance/test_running.py::test_or_13_calls_and_outputs_are_pruned_in_pairs_and_keep_their_order
OR-14 Parallel results are sent in order of completion, which invalidates the prompt cache.
  -> tests/acceptance/test_order.py::test_or_14_results_are_written_in_call_order_not_in_completion_order
OR-15 Two turns of one role follow each other, and the provider rejects them.
  -> tests/acceptance/test_order.py::test_or_15_consecutive_turns_of_one_role_are_merged
OR-16 A history with tool calls fails because the request declares no tools.
  -> tests/acceptance/test_order.py::test_or_16_a_history_with_calls_needs_no_declared_tools
PA-1 Parallel calls of a stream are merged into one content block.
  -> tests/acceptance/test_parallel.py::test_pa_1_each_call_has_its_own_block
PA-2 Parallel calls become several choices, some of them with empty call objects.
  -> tests/acceptance/test_parallel.py::test_pa_2_parallel_calls_are_one_choice_without_empty_call_objects
PA-3 Every call of a Chat stream has index 0, or the index of its Anthropic block.
  -> tests/acceptance/test_parallel.py::test_pa_3_the_call_index_counts_calls_only
PA-4 A provider reuses index 0 for a second call, and the arguments of both are concatenated.
  -> tests/acceptance/test_parallel.py::test_pa_4_a_new_id_at_the_same_index_is_a_new_call
PA-5 Interleaved fragments of arguments are all appended to the last call.
  -> tests/acceptance/test_parallel.py::test_pa_5_interleaved_fragments_follow_their_index
PA-6 Argument deltas of parallel Responses calls are merged, or are lost when they precede their item.
  -> tests/acceptance/test_parallel.py::test_pa_6_deltas_are_routed_by_item_even_before_the_item_is_added
PA-7 Arguments of parallel Gemini calls are concatenated in one item.
  -> tests/acceptance/test_parallel.py::test_pa_7_parallel_calls_in_one_chunk_stay_separate
PA-8 Only the first call of a response is translated.
  -> tests/acceptance/test_parallel.py::test_pa_8_every_call_of_a_response_is_kept
PA-9 The stream ends with the first finished item, and the calls after it are lost.
  -> tests/acceptance/test_parallel.py::test_pa_9_the_stream_ends_with_the_response_not_with_its_first_item
PA-10 The wrapper `multi_tool_use.parallel` is executed as if it were a tool.
  -> tests/acceptance/test_running.py::test_pa_10_a_parallel_wrapper_is_expanded_into_its_calls
PA-11 Output indices of messages, reasoning and calls clash.
  -> tests/acceptance/test_parallel.py::test_pa_11_output_indices_count_all_kinds_of_items
ST-1 A stream that begins with a call opens a block before `message_start`.
  -> tests/acceptance/test_streaming.py::test_st_1_message_start_comes_first_even_before_a_call
ST-2 A stream has two `message_start` events.
  -> tests/acceptance/test_streaming.py::test_st_2_there_is_one_message_start
ST-3 The chunk that opens a call and holds all its arguments is discarded.
  -> tests/acceptance/test_streaming.py::test_st_3_a_chunk_with_a_complete_call_is_not_lost
ST-4 The first token after a change from thinking to text or to a call is lost.
  -> tests/acceptance/test_streaming.py::test_st_4_the_first_token_after_a_change_of_kind_is_kept
ST-5 A stream that begins with reasoning opens a text block.
  -> tests/acceptance/test_streaming.py::test_st_5_the_first_block_has_the_type_of_the_first_delta
ST-6 An empty `tool_calls` list beside text turns the text into empty call arguments.
  -> tests/acceptance/test_streaming.py::test_st_6_an_empty_list_of_calls_is_no_call
ST-7 A delta refers to a content block that is not open.
  -> tests/acceptance/test_streaming.py::test_st_7_every_delta_has_an_open_block_and_every_block_is_closed
ST-8 Later deltas of a call repeat its name as an empty string.
  -> tests/acceptance/test_streaming.py::test_st_8_the_name_of_a_call_is_sent_once
ST-9 A call whose name comes late is dropped, or is sent without a name.
  -> tests/acceptance/test_streaming.py::test_st_9_a_late_name_is_awaited
ST-10 Arguments that arrive as an object instead of a string end the stream.
  -> tests/acceptance/test_streaming.py::test_st_10_arguments_that_arrive_as_an_object_are_decoded
ST-11 `response.completed` lacks calls that the stream had sent.
  -> tests/acceptance/test_streaming.py::test_st_11_the_completed_output_holds_every_finished_item
ST-12 `function_call_arguments.done` is missing, or is ignored when it comes without deltas.
  -> tests/acceptance/test_streaming.py::test_st_12_arguments_done_is_sent_once_and_suffices_alone
ST-13 A stream without a finish reason never ends for the client.
  -> tests/acceptance/test_streaming.py::test_st_13_a_stream_without_finish_reason_still_ends
ST-14 Chunks after `[DONE]` are forwarded.
  -> tests/acceptance/test_streaming.py::test_st_14_chunks_after_done_are_ignored
ST-15 A tool runs as soon as its partial arguments happen to parse.
  -> tests/acceptance/test_streaming.py::test_st_15_arguments_that_parse_early_are_not_final
ST-16 A missing `index` in a call delta crashes the translator.
  -> tests/acceptance/test_streaming.py::test_st_16_fragments_without_an_index_are_joined_by_id_and_order
ST-17 Arguments in pieces are rejected where complete arguments were expected.
  -> tests/acceptance/test_streaming.py::test_st_17_arguments_may_arrive_complete_or_in_pieces
ST-18 A `ping` is dropped, and idle proxies close the connection.
  -> tests/acceptance/test_streaming.py::test_st_18_a_ping_is_forwarded_to_the_other_protocol
ST-19 A proxy closes the stream while the model thinks silently.
  -> tests/acceptance/test_gateway_exchanges.py::test_st_19_silence_is_filled_with_heartbeats_that_each_sdk_accepts
ST-20 A character that is split between two chunks is corrupted.
  -> tests/acceptance/test_framing.py::test_st_20_characters_split_between_chunks_arrive_intact
ST-21 SSE frames that are split or joined between reads are lost.
  -> tests/acceptance/test_framing.py::test_st_21_frames_are_parsed_in_every_legal_spelling
ST-22 A frame header that is split between reads is misread.
  -> tests/acceptance/test_framing.py::test_st_22_a_frame_may_arrive_one_byte_at_a_time
ST-23 Assembling long arguments takes quadratic time.
  -> tests/acceptance/test_framing.py::test_st_23_the_cost_of_long_arguments_grows_linearly
ST-24 The first Chat chunk lacks the role.
  -> tests/acceptance/test_streaming.py::test_st_24_the_first_chunk_has_the_role
ST-25 Usage in `response.created` breaks strict clients.
  -> tests/acceptance/test_streaming.py::test_st_25_no_usage_before_the_terminal_event
ST-26 Text is sent twice, by its deltas and by the `done` event.
  -> tests/acceptance/test_streaming.py::test_st_26_done_events_do_not_repeat_the_text
ST-27 A compressed response reaches the client still compressed, or with a stale `Content-Encoding`.
  -> tests/acceptance/test_gateway_exchanges.py::test_st_27_a_compressed_response_is_decompressed_and_its_header_removed
ST-28 A very large informational event kills the stream.
  -> tests/acceptance/test_framing.py::test_st_28_a_huge_or_broken_informational_frame_does_not_end_the_stream
ST-29 A reasoning item with several summary parts becomes several thinking blocks without a valid signature.
  -> tests/acceptance/test_streaming.py::test_st_29_a_reasoning_item_of_several_parts_is_one_thinking_block
ST-30 An item that the stream announces twice appears twice.
  -> tests/acceptance/test_streaming.py::test_st_30_an_item_announced_twice_is_one_item
ST-31 Block indices of a stream with server tools have gaps.
  -> tests/acceptance/test_streaming.py::test_st_31_block_indices_are_contiguous_across_server_tools
ST-32 Partial arguments of Gemini are held back until the call is complete.
  -> tests/acceptance/test_signatures.py::test_st_32_partial_arguments_of_gemini_are_streamed_as_they_arrive
EM-1 A turn with only calls is sent with an empty text, which some providers reject.
  -> tests/acceptance/test_empty.py::test_em_1_an_assistant_turn_with_only_calls_has_null_content
EM-2 A message with null content and calls is dropped.
  -> tests/acceptance/test_empty.py::test_em_2_null_content_beside_calls_keeps_the_message
EM-3 Empty text or thinking blocks are sent, and the provider rejects them.
  -> tests/acceptance/test_empty.py::test_em_3_empty_blocks_are_not_sent_and_the_change_is_reported
EM-4 A tool result without content becomes invalid JSON.
  -> tests/acceptance/test_empty.py::test_em_4_a_result_without_content_is_an_empty_result
EM-5 A response whose thinking used up all tokens arrives without any choice.
  -> tests/acceptance/test_empty.py::test_em_5_an_empty_response_that_was_cut_is_still_one_response
EM-6 A truncated empty response looks like a successful empty turn.
  -> tests/acceptance/test_empty.py::test_em_6_an_empty_truncated_response_reports_its_stop_reason
EM-7 Empty text beside calls becomes an empty assistant message.
  -> tests/acceptance/test_empty.py::test_em_7_empty_text_beside_calls_makes_no_message
EM-8 An empty tool description makes the provider reject the request.
  -> tests/acceptance/test_empty.py::test_em_8_an_empty_description_passes_unchanged
EM-9 Anthropic rejects trailing whitespace in a final assistant text.
  -> tests/acceptance/test_empty.py::test_em_9_only_the_end_of_a_final_assistant_text_is_trimmed
AR-1 A call without arguments has an empty string, and decoding it as JSON fails in every later turn.
  -> tests/acceptance/test_arguments.py::test_ar_1_missing_arguments_are_an_empty_object
AR-2 A tool with required parameters runs with defaults, because the model sent no arguments.
  -> tests/acceptance/test_running.py::test_ar_2_missing_required_arguments_fail_closed
AR-3 Integers over 2^53 lose digits because they pass through a float.
  -> tests/acceptance/test_arguments.py::test_ar_3_integers_of_any_size_are_exact
AR-4 An integer arrives as `10.0`, and a strict client rejects it.
  -> tests/acceptance/test_arguments.py::test_ar_4_integral_floats_become_integers_where_the_schema_has_integers
AR-5 The model encodes an array or object twice, and validation fails.
  -> tests/acceptance/test_running.py::test_ar_5_double_encoded_arguments_are_repaired_on_request
AR-6 Arguments that are not an object are sent as `input` and rejected.
  -> tests/acceptance/test_arguments.py::test_ar_6_arguments_that_are_not_an_object_are_wrapped_reported_and_restored
AR-7 Truncated arguments are repaired and executed.
  -> tests/acceptance/test_arguments.py::test_ar_7_truncated_arguments_are_marked_and_not_repaired
AR-8 Tool output that begins like JSON is embedded as JSON, and the request is invalid.
  -> tests/acceptance/test_arguments.py::test_ar_8_output_that_looks_like_json_is_sent_as_text
AR-9 A `$ref` in tool output is taken for a schema reference and rejected.
  -> tests/acceptance/test_arguments.py::test_ar_9_references_in_an_output_are_text
AR-10 Null arguments crash the translator.
  -> tests/acceptance/test_arguments.py::test_ar_10_null_arguments_are_an_empty_object
AR-11 Arguments such as `0`, `[]` or `""` are taken for missing ones.
  -> tests/acceptance/test_arguments.py::test_ar_11_falsy_values_are_values
AR-12 A key such as `__proto__` in streamed arguments changes the object itself.
  -> tests/acceptance/test_arguments.py::test_ar_12_unusual_keys_are_data_and_duplicate_keys_are_kept
AR-13 A tool with an open map is marked strict, and the map is never filled.
  -> tests/acceptance/test_arguments.py::test_ar_13_a_tool_with_an_open_map_is_not_marked_strict
SC-1 Gemini rejects `$ref` and `$defs`, or the referenced schema is lost.
  -> tests/acceptance/test_schema_dialects.py::test_sc_1_references_are_kept_where_supported_and_inlined_elsewhere
SC-2 Keywords beside a `$ref` are rejected or lost.
  -> tests/acceptance/test_schema_dialects.py::test_sc_2_keywords_beside_a_reference_are_kept
SC-3 A recursive schema is expanded without end.
  -> tests/acceptance/test_schema_dialects.py::test_sc_3_recursion_is_kept_where_supported_and_left_open_elsewhere
SC-4 An enum of numbers or booleans makes Gemini reject the request.
  -> tests/acceptance/test_schema_dialects.py::test_sc_4_an_enum_of_other_types_moves_to_the_description_and_keeps_its_type
SC-5 A null in an enum makes Gemini reject the request.
  -> tests/acceptance/test_schema_dialects.py::test_sc_5_null_leaves_the_enum_and_stays_allowed
SC-6 An `anyOf` with an empty or null branch loses its meaning.
  -> tests/acceptance/test_schema_dialects.py::test_sc_6_any_stays_any_and_a_null_branch_becomes_nullable
SC-7 A list of types, or a number written as a string, makes Gemini reject the schema.
  -> tests/acceptance/test_schema_dialects.py::test_sc_7_lists_of_types_and_numbers_as_strings_are_normalized
SC-8 Conditions such as `if`/`then` vanish from the schema, and so does the contract of the tool.
  -> tests/acceptance/test_schema_dialects.py::test_sc_8_conditions_move_to_the_description_and_boolean_schemas_are_decoded
SC-9 Keys of one vendor inside a schema are sent to another vendor, which rejects them.
  -> tests/acceptance/test_schema.py::test_sc_9_vendor_specific_keys_are_dropped_and_reported
SC-10 A property named `title` or `type` is deleted as if it were a keyword.
  -> tests/acceptance/test_schema.py::test_sc_10_property_names_are_not_keywords
SC-11 A schema without `type` is rejected, or the schema of the caller is modified.
  -> tests/acceptance/test_schema.py::test_sc_11_a_missing_type_is_added_to_a_copy
SC-12 A tool without parameters is rejected, or loses its explicit empty object.
  -> tests/acceptance/test_schema.py::test_sc_12_a_tool_without_arguments_has_an_empty_object
SC-13 Responses makes a tool strict by default, and the model invents optional arguments.
  -> tests/acceptance/test_schema.py::test_sc_13_a_tool_that_is_not_strict_says_so_to_responses
SC-14 A strict schema lacks `additionalProperties` or `required`, and the provider rejects it.
  -> tests/acceptance/test_schema_dialects.py::test_sc_14_a_strict_schema_is_completed_for_the_target
SC-15 An output format has keywords that the provider does not compile.
  -> tests/acceptance/test_schema.py::test_sc_15_an_output_format_uses_only_keywords_that_the_target_compiles
SC-16 The field `strict` is sent to a model that does not support it.
  -> tests/acceptance/test_gateway_requests.py::test_sc_16_strict_is_sent_only_to_models_that_support_it
SC-17 Open maps and definitions at the root are erased from a schema.
  -> tests/acceptance/test_schema.py::test_sc_17_maps_and_root_definitions_survive
SC-18 Schemas inside `allOf` are not translated.
  -> tests/acceptance/test_schema.py::test_sc_18_composed_schemas_survive_at_every_depth
SC-19 The order of schema keys changes with every request, which invalidates the prompt cache.
  -> tests/acceptance/test_schema.py::test_sc_19_the_order_of_keys_is_kept_and_the_bytes_are_stable
SC-20 Unknown schema keywords are lost.
  -> tests/acceptance/test_schema.py::test_sc_20_unknown_keywords_are_kept
TH-1 Gemini rejects a function call because its thought signature was lost on the way through the client.
  -> tests/acceptance/test_signatures.py::test_th_1_a_call_keeps_its_signature_or_skips_the_check_and_reports_it
TH-2 A placeholder for a signature is sent to Anthropic, which rejects it.
  -> tests/acceptance/test_thinking.py::test_th_2_no_signature_is_invented_for_anthropic
TH-3 One signature is attached to several parts, and the context doubles.
  -> tests/acceptance/test_signatures.py::test_th_3_each_signature_stands_once_on_its_part
TH-4 Signatures of a Gemini stream are lost or concatenated.
  -> tests/acceptance/test_signatures.py::test_th_4_the_signatures_of_a_stream_are_kept_part_by_part
TH-5 Signed thinking of one provider is sent to another, which rejects the signature.
  -> tests/acceptance/test_thinking.py::test_th_5_reasoning_of_another_provider_is_not_sent_as_native
TH-6 Serializing a signed thinking block again changes its bytes and invalidates the signature.
  -> tests/acceptance/test_thinking.py::test_th_6_signed_blocks_pass_byte_for_byte
TH-7 A thinking block with a signature and empty text is taken for invalid.
  -> tests/acceptance/test_thinking.py::test_th_7_empty_thinking_text_with_a_signature_is_kept
TH-8 Thinking is enabled for a history whose last turn has none, and the provider rejects it.
  -> tests/acceptance/test_thinking.py::test_th_8_thinking_is_not_required_of_a_history_without_it
TH-9 Reasoning items with encrypted content are dropped silently.
  -> tests/acceptance/test_signatures.py::test_th_9_a_reasoning_item_survives_every_client
TH-10 Redacted thinking is lost in other protocols.
  -> tests/acceptance/test_signatures.py::test_th_10_redacted_thinking_survives_every_client
TH-11 A request refers to a reasoning item that the provider did not store.
  -> tests/acceptance/test_thinking.py::test_th_11_no_reasoning_item_is_referenced_that_the_provider_does_not_store
TH-12 Trimming the history separates a reasoning item from its call.
  -> tests/acceptance/test_running.py::test_th_12_reasoning_is_kept_with_the_call_it_led_to
TH-13 A provider demands `reasoning_content` with its calls, and the gateway does not send it back.
  -> tests/acceptance/test_gateway_requests.py::test_th_13_the_reasoning_before_a_call_is_sent_back_with_it
TH-14 Reasoning without a signature, or null reasoning, fails validation.
  -> tests/acceptance/test_thinking.py::test_th_14_unsigned_reasoning_is_shown_and_null_is_no_reasoning
TH-15 A chunk with both thinking and a signature fails.
  -> tests/acceptance/test_thinking.py::test_th_15_text_and_signature_may_arrive_together
TH-16 Thinking between server tool calls changes its place.
  -> tests/acceptance/test_thinking.py::test_th_16_thinking_between_server_calls_keeps_its_position
TH-17 An effort that the target does not know is lowered silently.
  -> tests/acceptance/test_thinking.py::test_th_17_an_effort_is_mapped_exactly_or_its_change_is_reported
TH-18 The signature of one block is attached to the next.
  -> tests/acceptance/test_thinking.py::test_th_18_a_signature_is_not_carried_over_to_the_next_block
TH-19 Sampling parameters beside thinking make Anthropic reject the request.
  -> tests/acceptance/test_thinking.py::test_th_19_sampling_beside_thinking_is_dropped_and_reported
TH-20 Reasoning leaks into the visible text.
  -> tests/acceptance/test_thinking.py::test_th_20_reasoning_never_becomes_visible_text
SR-1 Gemini reports `STOP` in a chunk after the call, and the client believes that the turn is over.
  -> tests/acceptance/test_stop_usage.py::test_sr_1_a_stop_after_a_call_is_a_tool_stop
SR-2 A response with calls finishes with `stop`.
  -> tests/acceptance/test_stop_usage.py::test_sr_2_a_response_with_calls_finishes_with_tool_calls
SR-3 A truncated response is reported as completed.
  -> tests/acceptance/test_stop_usage.py::test_sr_3_a_truncated_response_is_incomplete_and_so_are_its_calls
SR-4 A response with calls ends with `end_turn`.
  -> tests/acceptance/test_stop_usage.py::test_sr_4_a_response_with_calls_stops_for_tool_use
SR-5 Every stop reason becomes `stop`.
  -> tests/acceptance/test_stop_usage.py::test_sr_5_every_stop_reason_is_mapped
SR-6 An unknown stop reason crashes the translator, or becomes a normal end.
  -> tests/acceptance/test_stop_usage.py::test_sr_6_an_unknown_reason_is_kept_in_its_protocol_and_reported_elsewhere
SR-7 Tools run after a response that ended for its length or a content filter.
  -> tests/acceptance/test_running.py::test_sr_7_no_tool_runs_unless_the_response_stopped_for_tools
SR-8 A refusal arrives as an empty turn.
  -> tests/acceptance/test_stop_usage.py::test_sr_8_a_refusal_is_surfaced
SR-9 Structured output that is implemented as a tool appears to the client as a tool call.
  -> tests/acceptance/test_stop_usage.py::test_sr_9_structured_output_is_not_implemented_as_a_tool
SR-10 `response.incomplete` is taken for a failure, and the request is sent again.
  -> tests/acceptance/test_stop_usage.py::test_sr_10_an_incomplete_response_is_a_response_not_a_failure
US-1 The usage of a translated stream stays zero.
  -> tests/acceptance/test_stop_usage.py::test_us_1_the_last_usage_of_a_stream_is_correct
US-2 Cached tokens are counted twice, because one protocol includes them in the input tokens and another does not.
  -> tests/acceptance/test_stop_usage.py::test_us_2_totals_are_conserved_under_each_convention
US-3 Usage that a stream repeats is added up.
  -> tests/acceptance/test_stop_usage.py::test_us_3_repeated_usage_is_not_summed
US-4 Responses usage lacks the reasoning tokens.
  -> tests/acceptance/test_stop_usage.py::test_us_4_reasoning_tokens_are_always_reported
US-5 Usage is lost because the gateway did not request it, or is sent to a client that did not.
  -> tests/acceptance/test_stop_usage.py::test_us_5_usage_is_requested_upstream_and_hidden_from_clients_that_did_not_ask
US-6 Thinking tokens are not counted.
  -> tests/acceptance/test_stop_usage.py::test_us_6_thinking_tokens_are_counted
US-7 The usage of an incomplete response is ignored.
  -> tests/acceptance/test_stop_usage.py::test_us_7_the_usage_of_an_incomplete_response_is_captured
US-8 A cache mark on a deferred tool makes the provider reject the request.
  -> tests/acceptance/test_gateway_requests.py::test_us_8_a_cache_mark_on_a_deferred_tool_moves_to_the_last_loaded_tool
US-9 More than four cache marks are sent, and the provider rejects the request.
  -> tests/acceptance/test_stop_usage.py::test_us_9_at_most_four_cache_marks_are_sent
US-10 A cache mark on a tool or a result is lost or misplaced.
  -> tests/acceptance/test_stop_usage.py::test_us_10_a_cache_mark_without_equivalent_is_reported_at_its_position
US-11 Usage is lost when a provider omits or repeats sequence numbers.
  -> tests/acceptance/test_stop_usage.py::test_us_11_usage_does_not_depend_on_sequence_numbers
IM-1 An image in a tool result for Gemini is dropped.
  -> tests/acceptance/test_media_errors.py::test_im_1_an_image_in_a_result_for_gemini_is_bound_to_it
IM-2 An image in a tool result becomes text in Chat Completions, or is dropped.
  -> tests/acceptance/test_media_errors.py::test_im_2_an_image_in_a_result_follows_the_tool_messages
IM-3 Images of parallel results are all attached to the last result.
  -> tests/acceptance/test_media_errors.py::test_im_3_images_of_parallel_results_stay_with_their_results
IM-4 A document in a tool result is dropped or sent as text.
  -> tests/acceptance/test_media_errors.py::test_im_4_a_document_in_a_result_is_a_native_part
IM-5 Responses providers reject a list of texts as the output of a call.
  -> tests/acceptance/test_media_errors.py::test_im_5_a_list_of_texts_becomes_a_string_unless_it_has_media
IM-6 A file in a tool result is dropped silently.
  -> tests/acceptance/test_media_errors.py::test_im_6_a_file_in_a_result_is_not_dropped_silently
IM-7 An image URL is sent to Gemini as a file that it can't fetch.
  -> tests/acceptance/test_gateway_requests.py::test_im_7_an_image_url_that_gemini_cannot_fetch_is_refused_and_never_fetched
ER-1 An error flag becomes a field that Responses does not know.
  -> tests/acceptance/test_errors.py::test_er_1_an_error_result_is_flagged_or_marked_and_restored_in_its_protocol
ER-2 The error flag of a result is lost on the way through another protocol.
  -> tests/acceptance/test_errors.py::test_er_2_the_error_flag_survives_every_round_trip
ER-3 The error of a tool is sent to Gemini as a normal output.
  -> tests/acceptance/test_errors.py::test_er_3_an_error_is_sent_under_the_error_key
ER-4 A failed MCP tool is recorded and reported as a success.
  -> tests/acceptance/test_mcp.py::test_er_4_a_failed_mcp_tool_is_a_failure_in_the_record_and_to_the_model
TC-1 The tool choice `any` is rejected in Chat Completions.
  -> tests/acceptance/test_choice_system.py::test_tc_1_any_is_read_as_required
TC-2 A tool choice is sent without any tools, and the provider rejects it.
  -> tests/acceptance/test_choice_system.py::test_tc_2_choice_and_parallel_flag_are_omitted_when_no_tool_remains
TC-3 A parallel flag alone makes a tool choice without a type.
  -> tests/acceptance/test_choice_system.py::test_tc_3_the_parallel_flag_alone_makes_a_complete_choice
TC-4 Tool choice and parallel flag are sent in two places that contradict each other.
  -> tests/acceptance/test_choice_system.py::test_tc_4_choice_and_flag_are_sent_in_one_place
TC-5 `disable_parallel_tool_use` is lost when the tool choice is rebuilt.
  -> tests/acceptance/test_choice_system.py::test_tc_5_the_parallel_switch_is_kept_in_both_directions
TC-6 A tool choice names a tool that was renamed or removed.
  -> tests/acceptance/test_choice_system.py::test_tc_6_a_choice_follows_its_tool
TC-7 `allowed_tools` of Responses is ignored by other protocols.
  -> tests/acceptance/test_choice_system.py::test_tc_7_a_choice_among_some_tools_offers_only_these
TC-8 A model that can't be forced to call a tool while it thinks rejects the request.
  -> tests/acceptance/test_gateway_requests.py::test_tc_8_thinking_is_disabled_for_a_forced_call_where_both_are_rejected
TC-9 A tool choice is dropped or becomes `auto`.
  -> tests/acceptance/test_choice_system.py::test_tc_9_every_choice_is_mapped_exactly
TC-10 Settings without an equivalent are dropped silently.
  -> tests/acceptance/test_choice_system.py::test_tc_10_settings_without_equivalent_are_reported
SY-1 A system message in the middle of a conversation is rejected.
  -> tests/acceptance/test_choice_system.py::test_sy_1_system_text_in_the_middle_keeps_its_position_in_chat
SY-2 A system message in the middle of a conversation is dropped silently.
  -> tests/acceptance/test_choice_system.py::test_sy_2_system_text_is_never_dropped
SY-3 A system message becomes a message of the assistant.
  -> tests/acceptance/test_choice_system.py::test_sy_3_system_text_in_the_middle_is_a_developer_item_in_responses
SY-4 A developer message in the list makes Anthropic reject the request.
  -> tests/acceptance/test_choice_system.py::test_sy_4_leading_system_text_is_lifted_and_later_text_is_placed_legally
SY-5 Null instructions make Responses reject the request.
  -> tests/acceptance/test_choice_system.py::test_sy_5_null_instructions_are_no_instructions
SY-6 Cache marks on system blocks make a Chat provider reject the request.
  -> tests/acceptance/test_choice_system.py::test_sy_6_system_blocks_with_cache_marks_lose_only_the_marks
SY-7 A system message within the conversation is sent to Gemini with a role that it does not know.
  -> tests/acceptance/test_choice_system.py::test_sy_7_system_text_is_an_instruction_or_a_reminder
SV-1 A web search tool of Anthropic is sent to another provider and finds nothing, without any error.
  -> tests/acceptance/test_server_tools.py::test_sv_1_a_search_tool_is_mapped_reported_emulated_or_refused
SV-2 A search that the provider ran is shown by the client as zero searches.
  -> tests/acceptance/test_gateway_requests.py::test_sv_2_a_provider_search_is_shown_as_native_blocks_of_the_client
SV-3 A tool type that the target does not support is dropped silently.
  -> tests/acceptance/test_server_tools.py::test_sv_3_a_tool_without_equivalent_is_named
SV-4 Built-in tools of Responses are rejected or dropped by other providers.
  -> tests/acceptance/test_server_tools.py::test_sv_4_every_built_in_tool_is_mapped_or_reported
SV-5 Deferred tools can never be called, because the target has no tool search.
  -> tests/acceptance/test_gateway_requests.py::test_sv_5_deferred_tools_are_callable_where_the_target_has_no_search
SV-6 Items of a tool search lose fields or keep references to old names.
  -> tests/acceptance/test_server_tools.py::test_sv_6_tool_search_keeps_its_exact_shape
SV-7 Items of a tool search lose their ids in the next request.
  -> tests/acceptance/test_server_tools.py::test_sv_7_tool_search_items_keep_their_ids_in_the_next_request
SV-8 A `tool_reference` in a result is lost, and its tool is never declared.
  -> tests/acceptance/test_server_tools.py::test_sv_8_a_tool_that_a_result_references_is_declared
SV-9 `allowed_callers` is lost in translation, and the model may call a tool that only code may call.
  -> tests/acceptance/test_server_tools.py::test_sv_9_a_tool_that_only_code_may_call_is_refused
SV-10 Callers of one vendor are taken for those of another.
  -> tests/acceptance/test_server_tools.py::test_sv_10_callers_of_another_vendor_are_never_mapped_silently
SV-11 Results of tools that the provider ran are separated from their calls.
  -> tests/acceptance/test_server_tools.py::test_sv_11_results_of_provider_tools_stay_with_their_calls
SV-12 Tools in a namespace are dropped, or their calls return without the namespace.
  -> tests/acceptance/test_server_tools.py::test_sv_12_namespaces_are_flattened_and_restored
SV-13 Function declarations are dropped or rejected beside the search tool of Gemini.
  -> tests/acceptance/test_server_tools.py::test_sv_13_gemini_search_works_beside_functions
SV-14 One failing MCP server empties the list of all tools.
  -> tests/acceptance/test_mcp.py::test_sv_14_one_failing_server_leaves_the_others_and_is_reported
SV-15 Only the first page of an MCP tool list is read.
  -> tests/acceptance/test_mcp.py::test_sv_15_cursors_are_followed_to_the_end
SV-16 An MCP hint that is explicitly false is lost.
  -> tests/acceptance/test_mcp.py::test_sv_16_a_hint_that_is_false_stays_false
NA-1 A tool name is longer than the target permits.
  -> tests/acceptance/test_names_custom.py::test_na_1_a_long_name_is_shortened_deterministically_and_restored
NA-2 A reference to a tool has the long name, while the tool was declared under its short name.
  -> tests/acceptance/test_names_custom.py::test_na_2_a_reference_to_a_tool_uses_its_short_name
NA-3 Two tool names become equal when illegal characters are replaced.
  -> tests/acceptance/test_names_custom.py::test_na_3_names_with_illegal_characters_do_not_collide
NA-4 An invalid tool name in the history makes the provider reject the request.
  -> tests/acceptance/test_names_custom.py::test_na_4_names_in_the_history_are_made_legal_too
NA-5 The model repeats the prefix of a tool name, and the call is unknown.
  -> tests/acceptance/test_gateway_requests.py::test_na_5_an_alias_with_a_repeated_prefix_is_understood
NA-6 A call reaches the wrong MCP server, because the prefix of its name is ambiguous.
  -> tests/acceptance/test_mcp.py::test_na_6_a_call_reaches_its_server_whatever_the_name_contains
CU-1 A custom tool is declared in the shape of the other OpenAI protocol and rejected.
  -> tests/acceptance/test_names_custom.py::test_cu_1_the_flat_and_the_nested_form_are_one_tool
CU-2 A call of a custom tool returns as a function call, which the client rejects.
  -> tests/acceptance/test_names_custom.py::test_cu_2_a_custom_tool_becomes_a_function_and_its_call_is_restored
CU-3 Custom tools are translated on one path and not on another.
  -> tests/acceptance/test_names_custom.py::test_cu_3_custom_tools_become_functions_on_every_path
CU-4 A call of a custom tool vanishes in the middle of a stream.
  -> tests/acceptance/test_names_custom.py::test_cu_4_a_custom_call_in_a_stream_does_not_vanish
CU-5 The output of a custom tool changes its form.
  -> tests/acceptance/test_names_custom.py::test_cu_5_custom_outputs_keep_their_form
CT-1 The endpoint `count_tokens` is missing.
  -> tests/acceptance/test_counting.py::test_ct_1_every_client_can_count_tokens_with_every_provider
CT-2 A token count ignores system text and tools.
  -> tests/acceptance/test_counting.py::test_ct_2_system_text_and_tools_are_counted
CT-3 A provider that can't count tokens is taken out of service.
  -> tests/acceptance/test_counting.py::test_ct_3_a_provider_that_cannot_count_stays_in_service
CT-4 A token count is estimated with the tokenizer of another vendor.
  -> tests/acceptance/test_counting.py::test_ct_4_the_count_of_the_provider_matches_the_exchange
CT-5 The request that is counted differs from the request that is sent.
  -> tests/acceptance/test_counting.py::test_ct_5_the_counted_request_is_the_request_that_would_be_sent
EX-1 An overload error inside a 200 stream is swallowed, and no other provider is tried.
  -> tests/acceptance/test_gateway_exchanges.py::test_ex_1_overloaded_after_200_is_a_529_before_output_and_a_typed_error_after
EX-2 A provider fails in the middle of a stream, and the client sees a normal end.
  -> tests/acceptance/test_errors.py::test_ex_2_a_truncated_stream_ends_with_an_error_not_with_success
EX-3 An error inside a Chat stream becomes an empty success.
  -> tests/acceptance/test_errors.py::test_ex_3_an_error_inside_a_chat_stream_is_a_failure
EX-4 An error event in a Responses stream is ignored.
  -> tests/acceptance/test_errors.py::test_ex_4_an_error_event_of_a_responses_stream_is_a_failure
EX-5 A stream fails after routing is over, and no other provider is tried.
  -> tests/acceptance/test_gateway_exchanges.py::test_ex_5_the_first_event_is_awaited_while_failover_is_possible
EX-6 A refused connection is reported as a fault of the client.
  -> tests/acceptance/test_gateway_exchanges.py::test_ex_6_a_refused_connection_is_a_502_server_error
EX-7 An error status in response to a streaming request is parsed as a stream.
  -> tests/acceptance/test_gateway_exchanges.py::test_ex_7_an_error_to_a_streaming_request_is_an_error_not_a_stream
EX-8 A fault of one request takes a healthy provider out of service.
  -> tests/acceptance/test_gateway_exchanges.py::test_ex_8_client_errors_do_not_fail_over_or_mark_the_provider
EX-9 `Retry-After` is lost between protocols.
  -> tests/acceptance/test_gateway_exchanges.py::test_ex_9_retry_after_is_passed_on_across_protocols
EX-10 Retries go on after the client has left.
  -> tests/acceptance/test_gateway_exchanges.py::test_ex_10_waiting_to_retry_ends_when_the_client_leaves
EX-11 Clients do not recognize a context overflow, and do not compact their history.
  -> tests/acceptance/test_errors.py::test_ex_11_a_context_overflow_is_reported_in_the_form_clients_recognize
EX-12 A response in another protocol than expected fails without a clear error.
  -> tests/acceptance/test_errors.py::test_ex_12_a_response_in_the_wrong_protocol_is_refused_with_its_reason
CA-1 The provider keeps generating after the client has left.
  -> tests/acceptance/test_gateway_exchanges.py::test_ca_1_the_upstream_is_cancelled_on_every_path
CA-2 A client that leaves before the first token is not noticed.
  -> tests/acceptance/test_gateway_exchanges.py::test_ca_2_the_client_is_watched_from_admission
CA-3 Middleware hides the disconnect from the application.
  -> tests/acceptance/test_gateway_exchanges.py::test_ca_3_no_middleware_hides_the_disconnect
CA-4 The usage of a cancelled stream is not recorded.
  -> tests/acceptance/test_gateway_exchanges.py::test_ca_4_the_usage_of_a_cancelled_stream_is_counted
CA-5 Another provider is tried for a client that has left.
  -> tests/acceptance/test_gateway_exchanges.py::test_ca_5_no_other_provider_is_tried_for_a_client_that_left
CA-6 An aborted MCP call is never cancelled and leaks its handler.
  -> tests/acceptance/test_mcp.py::test_ca_6_an_aborted_call_is_cancelled_and_released
WS-1 A WebSocket without a model in its URL is rejected, or a warm-up request fails.
  -> tests/acceptance/test_websockets.py::test_ws_1_the_handshake_needs_no_model_and_a_warm_up_gets_an_empty_response
WS-2 A model that is named only in the handshake does not reach the provider.
  -> tests/acceptance/test_websockets.py::test_ws_2_a_model_named_only_in_the_handshake_reaches_the_upstream
WS-3 The WebSocket upgrade on `/v1/responses` is missing, and the client falls back in every session.
  -> tests/acceptance/test_websockets.py::test_ws_3_the_upgrade_is_accepted_and_clients_can_fall_back_without_it
WS-4 Another key can read a stored response by its id.
  -> tests/acceptance/test_websockets.py::test_ws_4_another_key_reads_nothing_over_any_transport
WS-5 A turn that sends only new items reaches a stateless provider without its history.
  -> tests/acceptance/test_websockets.py::test_ws_5_incremental_turns_reach_a_stateless_upstream_complete
WS-6 A message that is too large causes endless reconnects.
  -> tests/acceptance/test_websockets.py::test_ws_6_an_oversized_message_is_reported_and_the_connection_continues
WS-7 Configured headers or the provider's key are lost on a WebSocket, or those of the client are forwarded.
  -> tests/acceptance/test_websockets.py::test_ws_7_only_the_providers_key_and_headers_go_upstream
WS-8 Stored items that the client sends again appear twice.
  -> tests/acceptance/test_websockets.py::test_ws_8_items_that_are_sent_again_are_not_duplicated
WS-9 A connection carries several responses at once, or lives without end.
  -> tests/acceptance/test_websockets.py::test_ws_9_one_response_at_a_time_per_channel_and_connections_expire
""")  # noqa: E501
