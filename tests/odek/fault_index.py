"""Which test shows each numbered fault of an MCP host, or why none does.

The numbers are those of the fault catalogue behind the odek decisions: 1 to 19 transport, 20 to 31 configuration,
32 to 34 names, 35 to 44 results, 45 to 56 envelopes, 57 to 71 references, 72 to 78 forgery, 79 to 94 events, 95 to 103
budgets, 104 to 106 references to outside state, 107 to 115 artifacts, 116 to 122 the rest. A value that begins with
``tests/`` is a test; any other is the reason why there is none here.
"""

from __future__ import annotations

CALLS = "tests/mcp/test_mcp_calls.py::"
LINES = "tests/mcp/test_mcp_lines.py::"
CATALOGUE = "tests/mcp/test_mcp_catalogue.py::"
HANDSHAKE = "tests/mcp/test_mcp_handshake.py::"
CHILD = "tests/odek/test_odek_child_artifacts.py::"
CONFIG = "tests/odek/test_odek_config.py::"
ENVIRONMENT = "tests/odek/test_odek_environment.py::"
RESULT = "tests/odek/test_odek_result.py::"
EXTERNAL = "tests/odek/test_odek_external_ref.py::"
REF = "tests/odek/test_odek_artifact_ref.py::"
FILES = "tests/artifacts/test_artifact_files.py::"
REGISTRY = "tests/artifacts/test_artifact_registry.py::"
CHILDREN = "tests/artifacts/test_child_results.py::"
TASKS = "tests/artifacts/test_task_directories.py::"
SERVER = "tests/mcp_host/test_server_calls.py::"
STARTING = "tests/mcp_host/test_server_starting.py::"
PROCESS = "tests/mcp_host/test_server_processes.py::"

EMITTER = "tests/events/test_event_emitter.py::"
LOG = "tests/events/test_event_log.py::"
TYPES = "tests/events/test_event_types.py::"
RUN = "tests/events/test_run_events.py::"
READER = "tests/events/test_event_reader.py::"
REDACTION = "tests/events/test_redaction.py::"
BUDGET = "tests/budget/test_budget.py::"
EVENTS_CLI = "tests/cli/test_command_line_events.py::"

FAULTS: dict[int, tuple[str, ...]] = {
    1: (CALLS + "test_a_request_of_the_server_with_our_id_is_no_answer",),
    2: (CALLS + "test_an_answer_to_another_id_reaches_nobody",),
    3: (CALLS + "test_a_result_without_an_id_reaches_nobody",),
    4: (CALLS + "test_each_caller_gets_its_own_answer", PROCESS + "test_a_message_in_many_pieces_and_many_in_one"),
    5: (PROCESS + "test_a_server_that_reads_no_more",),
    6: (
        CALLS + "test_a_call_that_was_never_written_is_never_written",
        SERVER + "test_what_never_left_is_never_written",
    ),
    7: (CALLS + "test_a_call_that_is_being_written_is_dispatched", PROCESS + "test_a_server_that_reads_no_more"),
    8: (CALLS + "test_a_cancel_before_the_writing_keeps_its_reason", SERVER + "test_what_never_left_is_never_written"),
    9: (CALLS + "test_close_settles_at_once_and_again_does_nothing", SERVER + "test_the_end_of_the_input_comes_first"),
    10: (CALLS + "test_the_earlier_deadline_counts",),
    11: (CALLS + "test_the_earlier_deadline_counts",),
    12: (CALLS + "test_one_servers_timeout_is_its_own",),
    13: (CALLS + "test_a_deadline_that_has_passed_sends_nothing",),
    14: (
        LINES + "test_a_line_over_the_bound_fails_open_and_later_calls",
        PROCESS + "test_an_endless_line_ends_the_server",
    ),
    15: (LINES + "test_the_default_bound_is_ten_mebibytes",),
    16: (SERVER + "test_a_line_over_the_limit_ends_the_server_and_every_call",),
    17: (
        PROCESS + "test_a_server_that_exits_before_it_answers",
        HANDSHAKE + "test_the_end_before_the_answer_ends_the_start",
    ),
    18: (PROCESS + "test_what_cannot_be_started", STARTING + "test_a_program_that_is_not_there"),
    19: (CALLS + "test_close_before_anything", PROCESS + "test_how_a_server_is_asked_to_end"),
    20: (CONFIG + "test_a_timeout_over_the_cap_is_lowered_with_a_warning",),
    21: (CONFIG + "test_a_result_limit_over_the_cap_is_lowered_with_a_warning",),
    22: (CONFIG + "test_the_ceiling_of_a_response_is_refused_not_lowered",),
    23: (CONFIG + "test_a_negative_limit_is_refused",),
    24: (CONFIG + "test_a_result_limit_below_the_floor_is_raised_with_a_warning",),
    25: (CONFIG + "test_every_field_and_unknown_ones",),
    26: (CONFIG + "test_bad_server_names_are_refused",),
    27: (
        ENVIRONMENT + "test_only_the_listed_variables_come_from_the_host",
        PROCESS + "test_the_environment_and_the_arguments_are_as_configured",
    ),
    28: (ENVIRONMENT + "test_a_key_that_looks_secret_is_stripped_with_a_warning",),
    29: (ENVIRONMENT + "test_a_key_that_looks_secret_is_stripped_with_a_warning",),
    30: (ENVIRONMENT + "test_overrides_set_replace_and_remove",),
    31: (ENVIRONMENT + "test_every_hashed_part_changes_the_key",),
    32: (CATALOGUE + "test_a_server_with_a_bad_name_is_not_ready", PROCESS + "test_a_bad_name_is_found_at_the_start"),
    33: (CATALOGUE + "test_a_server_with_a_bad_name_is_not_ready",),
    34: (CATALOGUE + "test_one_bad_name_refuses_the_whole_server",),
    35: (RESULT + "test_an_error_reaches_the_caller_as_one", SERVER + "test_an_error_result_is_no_exception"),
    36: (RESULT + "test_an_error_is_cut_like_a_result", SERVER + "test_an_error_result_is_no_exception"),
    37: (
        RESULT + "test_a_remote_error_is_cut_with_its_code_kept",
        SERVER + "test_what_a_server_says_in_an_error_is_bounded_and_safe",
    ),
    38: (RESULT + "test_the_notice_is_exact", PROCESS + "test_the_six_fixture_tools"),
    39: (RESULT + "test_small_limits_hold_for_wide_characters",),
    40: (RESULT + "test_plain_text_is_passed_on_as_it_is",),
    41: (RESULT + "test_plain_text_is_cut_like_an_array_of_characters",),
    42: (RESULT + "test_an_envelope_keeps_its_metadata_lines",),
    43: (RESULT + "test_huge_members_are_cut",),
    44: (RESULT + "test_64_huge_references_keep_the_limit",),
    45: (RESULT + "test_envelopes", REF + "test_a_reference_with_and_without_the_optional_members"),
    46: (RESULT + "test_a_claim_that_does_not_hold_fails_the_call",),
    47: (RESULT + "test_a_byte_order_mark_is_passed_over",),
    48: (RESULT + "test_anything_else_is_plain_text",),
    49: (RESULT + "test_anything_else_is_plain_text",),
    50: (RESULT + "test_at_most_64_references",),
    51: (REF + "test_absent_null_and_zero_are_told_apart", FILES + "test_another_size"),
    52: (RESULT + "test_an_envelope_and_a_note",),
    53: (RESULT + "test_a_malformed_claim_beside_an_envelope_fails_the_call",),
    54: (RESULT + "test_two_envelopes_are_merged",),
    55: (RESULT + "test_without_roots_every_reference_is_refused",),
    56: (RESULT + "test_references_of_several_envelopes_are_counted_together",),
    57: (
        FILES + "test_without_a_root_nothing_is_accepted",
        SERVER + "test_without_roots_even_a_good_artifact_is_refused",
    ),
    58: (FILES + "test_without_a_root_nothing_is_accepted", FILES + "test_a_root_after_a_blank_one_counts"),
    59: (
        FILES + "test_a_file_outside_every_root",
        SERVER + "test_one_bad_artifact_fails_the_call_and_none_is_remembered",
    ),
    60: (FILES + "test_links_that_lead_out",),
    61: (FILES + "test_links_inside_that_stay_inside",),
    62: (FILES + "test_a_root_that_is_a_link",),
    63: (REF + "test_any_other_uri_is_refused", FILES + "test_no_way_of_writing_dots_leads_out"),
    64: (REF + "test_any_other_uri_is_refused", PROCESS + "test_the_six_fixture_tools"),
    65: (FILES + "test_what_is_not_there",),
    66: (FILES + "test_only_regular_files",),
    67: (
        FILES + "test_another_size",
        REF + "test_a_bad_member_is_named_with_its_place_and_the_id",
        FILES + "test_a_file_inside_a_root_that_is_as_declared",
    ),
    68: (
        FILES + "test_another_digest",
        REF + "test_a_bad_member_is_named_with_its_place_and_the_id",
        FILES + "test_a_file_inside_a_root_that_is_as_declared",
    ),
    69: (FILES + "test_64_mebibytes_and_no_more",),
    70: (FILES + "test_a_file_that_changes_while_it_is_hashed",),
    71: (
        REF + "test_a_missing_member_is_refused",
        REF + "test_a_bad_member_is_named_with_its_place_and_the_id",
        PROCESS + "test_the_six_fixture_tools",
    ),
    72: (RESULT + "test_a_forged_line_is_set_apart_wherever_it_stands",),
    73: (RESULT + "test_a_forged_line_is_set_apart_wherever_it_stands",),
    74: (RESULT + "test_a_forged_line_is_set_apart_wherever_it_stands",),
    75: (RESULT + "test_what_could_break_a_line_becomes_a_space",),
    76: (RESULT + "test_what_could_break_a_line_becomes_a_space",),
    77: (
        RESULT + "test_what_could_break_a_line_becomes_a_space",
        RESULT + "test_joiners_survive_and_the_id_is_quoted",
    ),
    78: (RESULT + "test_a_metadata_line", SERVER + "test_an_artifact_is_verified_shown_and_read_by_id"),
    79: (EMITTER + "test_a_raising_consumer_loses_that_event_alone",),
    80: (EMITTER + "test_a_blocked_consumer_blocks_nobody_and_drops_are_counted",),
    81: (EMITTER + "test_a_consumer_may_close_and_emit",),
    82: (EMITTER + "test_emitting_after_the_close_does_nothing",),
    83: (TYPES + "test_every_string_is_redacted_and_the_callers_data_stays",),
    84: (REDACTION + "test_every_string_at_any_depth_and_the_value_stays",),
    85: (LOG + "test_a_link_is_refused_and_its_target_untouched",),
    86: (LOG + "test_the_directory_must_exist",),
    87: (LOG + "test_the_file_is_private_and_appended_to",),
    88: (LOG + "test_the_file_is_private_and_appended_to",),
    89: (
        LOG + "test_a_failed_sync_is_reported_kept_and_repeated",
        LOG + "test_threads_share_an_fsync_and_none_returns_before_its_own",
        LOG + "test_after_the_close_nothing_is_taken",
    ),
    90: (RUN + "test_a_batch_has_distinct_ids_and_pairs_by_them", RUN + "test_the_ids_of_the_first_batch"),
    91: (
        TYPES + "test_arguments_leave_only_when_asked_for_and_then_redacted",
        EVENTS_CLI + "test_a_run_tells_of_its_calls_and_its_servers",
    ),
    92: (RUN + "test_a_result_that_speaks_of_an_error_is_a_completion",),
    93: (EMITTER + "test_a_huge_payload_holds_up_no_emitter",),
    94: (RUN + "test_a_failure_is_one_of_four_words",),
    95: (BUDGET + "test_a_project_only_lowers",),
    96: (BUDGET + "test_a_projects_prices_never_count",),
    97: (BUDGET + "test_without_both_prices_the_cost_is_off_and_tokens_are_not",),
    98: (BUDGET + "test_a_models_price_goes_first_and_falls_back_one_by_one",),
    99: (BUDGET + "test_the_order_when_a_reply_with_tool_calls_crosses_a_limit",),
    100: (
        BUDGET + "test_exactly_the_maximum_of_tool_calls_runs_and_a_denied_batch_does_not_count",
        EVENTS_CLI + "test_one_tool_call_more_than_allowed_ends_the_run_with_4",
    ),
    101: (BUDGET + "test_the_next_run_begins_with_fresh_counters",),
    102: (EVENTS_CLI + "test_a_limit_is_a_whole_number_above_0",),
    103: (BUDGET + "test_exit_codes",),
    104: (
        EXTERNAL + "test_other_kinds",
        EXTERNAL + "test_lengths_count_characters",
        EXTERNAL + "test_control_characters_are_refused",
        EXTERNAL + "test_what_cannot_be_kept_keeps_nothing",
    ),
    105: (
        EXTERNAL + "test_the_same_reference_twice_is_one",
        EXTERNAL + "test_references_are_compared_as_they_are_kept",
    ),
    106: (EXTERNAL + "test_what_a_command_line_may_say",),
    107: (
        REGISTRY + "test_a_file_that_became_a_link_outside",
        CHILDREN + "test_any_doubt_about_the_file_gives_an_error_and_no_bytes",
    ),
    108: (
        REGISTRY + "test_other_content_of_the_same_size",
        SERVER + "test_an_artifact_replaced_after_it_was_accepted_gives_no_bytes",
    ),
    109: (
        REGISTRY + "test_without_a_digest_nothing_is_read",
        CHILDREN + "test_any_doubt_about_the_file_gives_an_error_and_no_bytes",
    ),
    110: (REGISTRY + "test_a_file_that_is_gone",),
    111: (
        REGISTRY + "test_an_id_is_never_a_path",
        CHILDREN + "test_a_call_that_is_wrong_gives_an_error_and_no_bytes",
    ),
    112: (
        REGISTRY + "test_the_first_of_an_id_keeps_it",
        CHILDREN + "test_an_id_of_two_tasks",
        SERVER + "test_the_second_artifact_of_an_id_has_a_name_of_its_own",
    ),
    113: (
        CHILDREN + "test_a_reference_that_does_not_hold_is_dropped",
        CHILD + "test_a_bad_reference_is_dropped_and_the_rest_stays",
    ),
    114: (
        TASKS + "test_only_regular_files_at_the_top_are_artifacts",
        TASKS + "test_64_artifacts_and_the_largest_of_them",
        TASKS + "test_64_mebibytes_and_the_largest_first",
    ),
    115: (BUDGET + "test_what_a_child_reports_is_never_refunded",),
    116: (RESULT + "test_ids_are_unique_over_merged_envelopes_and_as_shown",),
    117: (
        LINES + "test_exactly_the_bound_passes_and_one_more_does_not",
        PROCESS + "test_a_line_of_exactly_the_limit",
    ),
    118: (SERVER + "test_a_line_over_the_limit_ends_the_server_and_every_call",),
    119: (LOG + "test_every_event_is_synced_when_its_write_returns",),
    120: (
        SERVER + "test_a_line_over_the_limit_ends_the_server_and_every_call",
        SERVER + "test_a_timeout_fails_the_call_and_keeps_the_process",
    ),
    121: (SERVER + "test_a_line_over_the_limit_ends_the_server_and_every_call",),
    122: (READER + "test_unknown_types_and_fields_are_ignored",),
}
