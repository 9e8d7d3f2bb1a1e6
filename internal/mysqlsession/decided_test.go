package mysqlsession_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/internal/mysqlsession"
	"github.com/timeoutcenter/toc/internal/testrig"
)

// irrelevant are the session variables that toc leaves as the server gives them, by the reason.
var irrelevant = map[string]string{
	"speed and memory only: each statement names its index": `
		analyze_max_length analyze_sample_percentage aria_repair_threads aria_sort_buffer_size aria_stats_method big_tables
		bulk_insert_buffer_size deadlock_search_depth_long deadlock_search_depth_short deadlock_timeout_long
		deadlock_timeout_short eq_range_index_dive_limit expensive_subquery_limit histogram_generation_max_mem_size
		histogram_size histogram_type information_schema_stats_expiry innodb_ddl_buffer_size innodb_ddl_threads
		innodb_parallel_read_threads internal_tmp_mem_storage_engine join_buffer_size join_buffer_space_limit
		join_cache_level max_heap_table_size max_length_for_sort_data max_rowid_filter_size max_seeks_for_key
		mrr_buffer_size myisam_repair_threads myisam_sort_buffer_size myisam_stats_method net_buffer_length
		optimizer_adjust_secondary_key_costs optimizer_extra_pruning_depth optimizer_join_limit_pref_ratio
		optimizer_max_sel_arg_weight optimizer_max_sel_args optimizer_max_subgraph_pairs optimizer_prune_level
		optimizer_search_depth optimizer_selectivity_sampling_limit optimizer_switch
		optimizer_use_condition_selectivity preload_buffer_size query_alloc_block_size query_prealloc_size
		range_alloc_block_size read_buffer_size read_rnd_buffer_size rowid_merge_buff_size select_into_buffer_size
		set_operations_buffer_size sql_buffer_result tcp_nodelay thread_pool_priority tmp_memory_table_size
		tmp_table_size transaction_alloc_block_size transaction_prealloc_size use_stat_tables
		enable_secondary_engine_statistics secondary_engine_cost_threshold log_warnings`,
	"a query cache drops what a commit changes, before the commit is answered": `
		query_cache_strip_comments query_cache_type query_cache_wlock_invalidate`,
	"the statements have nothing that it changes": `
		auto_increment_increment auto_increment_offset block_encryption_mode character_set_filesystem
		cte_max_recursion_depth default_regex_flags default_tmp_storage_engine default_week_format
		div_precision_increment enable_cascade_triggers group_concat_max_len identity innodb_ft_enable_stopword
		innodb_ft_user_stopword_table innodb_table_locks insert_id last_insert_id lc_time_names low_priority_updates
		max_delayed_threads max_insert_delayed_threads max_points_in_geometry max_recursive_iterations
		max_sp_recursion_depth max_tmp_tables old_passwords print_identified_with_as_hex rand_seed1 rand_seed2
		rbr_exec_mode restrict_fk_on_non_standard_key select_into_disk_sync select_into_disk_sync_delay
		standard_compliant_cte system_versioning_alter_history system_versioning_asof
		system_versioning_insert_history transaction_allow_batching updatable_views_with_limit
		windowing_use_high_precision xa_detach_on_prepare generated_random_password_length
		external_table_secondary_storage_engine external_table_storage_engine`,
	"the statements that make tables say it themselves, or work with any value": `
		binlog_alter_two_phase character_set_database character_set_server collation_database collation_server
		column_compression_threshold column_compression_zlib_level column_compression_zlib_strategy
		column_compression_zlib_wrap default_collation_for_utf8mb4 default_table_encryption
		explicit_defaults_for_timestamp innodb_compression_default innodb_default_encryption_key_id
		innodb_strict_mode keep_files_on_create sql_generate_invisible_primary_key sql_require_primary_key`,
	"READ COMMITTED has no snapshot over several statements": `innodb_snapshot_isolation`,
	"messages and logs: errors are told by their numbers": `
		end_markers_in_json explain_format explain_json_format_version lc_messages log_disabled_statements
		log_queries_not_using_indexes log_slow_admin_statements log_slow_disabled_statements log_slow_filter
		log_slow_max_warnings log_slow_min_examined_row_limit log_slow_query log_slow_query_time log_slow_rate_limit
		log_slow_slave_statements log_slow_verbosity long_query_time max_error_count min_examined_row_limit
		note_verbosity optimizer_trace optimizer_trace_features optimizer_trace_limit optimizer_trace_max_mem_size
		optimizer_trace_offset profiling profiling_history_size progress_report_time session_track_gtids
		session_track_schema session_track_state_change session_track_system_variables
		session_track_transaction_info show_create_table_skip_secondary_engine show_create_table_verbosity
		show_gipk_in_create_table_and_information_schema slow_query_log sql_log_off sql_notes sql_quote_show_create
		sql_warnings terminology_use_previous`,
	"for interactive clients": `interactive_timeout net_retry_count old`,
	"the administrator's bound: a statement beyond it fails by its name, and a batch is split": `
		connection_memory_chunk_size connection_memory_limit global_connection_memory_tracking max_allowed_packet
		max_user_connections parser_max_mem_size innodb_tmpdir`,
	"replication, for its administrators only": `
		binlog_annotate_row_events binlog_direct_non_transactional_updates binlog_row_image binlog_row_value_options
		binlog_rows_query_log_events binlog_transaction_compression binlog_transaction_compression_level_zstd
		default_master_connection group_replication_consistency gtid_domain_id gtid_next gtid_seq_no
		immediate_server_version max_relay_log_size original_commit_timestamp original_server_version
		pseudo_replica_mode pseudo_slave_mode pseudo_thread_id require_row_format server_id skip_parallel_replication
		sql_slave_skip_counter wsrep_causal_reads wsrep_dirty_reads wsrep_gtid_seq_no wsrep_on wsrep_osu_method
		wsrep_retry_autocommit wsrep_sync_wait wsrep_trx_fragment_size wsrep_trx_fragment_unit`,
}

// Each variable that a session of these servers can change is set by toc, read by it, or left alone for a reason.
func TestEverySessionVariableIsDecided(t *testing.T) {
	t.Parallel()
	db := testrig.MySQL(t).DB(t)
	decided := map[string]string{"tx_isolation": "set", "tx_read_only": "set", "storage_engine": "set", "old_alter_table": "set"}
	for _, v := range mysqlsession.Variables() {
		decided[v.Name] = "set"
	}
	for _, v := range mysqlsession.ServerVariables {
		decided[v.Name] = "read"
	}
	for why, names := range irrelevant {
		for name := range strings.FieldsSeq(names) {
			require.Empty(t, decided[name], "%s is decided twice", name)
			decided[name] = why
		}
	}
	if v := version(t, db); !strings.HasPrefix(v, "10.11.") && !strings.HasPrefix(v, "9.7.") {
		t.Skipf("the variables of %s may be others", v)
	}
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	rows, err := conn.QueryContext(t.Context(), "SHOW SESSION VARIABLES")
	require.NoError(t, err)
	var names []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name, new(string)))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	var undecided []string
	for _, name := range names {
		_, err := conn.ExecContext(t.Context(), "SET SESSION "+name+"=@@SESSION."+name)
		if err != nil && strings.Contains(err.Error(), "1238") || err != nil && strings.Contains(err.Error(), "1229") {
			continue // read-only, or global only
		}
		if decided[strings.ToLower(name)] == "" {
			undecided = append(undecided, name)
		}
	}
	slices.Sort(undecided)
	require.Empty(t, undecided)
	require.Greater(t, len(names), 400)
}
