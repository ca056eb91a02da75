# SPDX-License-Identifier: Apache-2.0
"""What the suite reads of each step's output: members, and the probes of ``tests`` or ``operations`` by name."""

from __future__ import annotations

from typing import Final

INSTANCE: Final = "instance_id state public_ip private_ip instance_type vpc_id key_file ssh_user"
_RULE: Final = "create_sg apply_{0}_rule {1} {2} cleanup"

MEMBERS: Final[dict[str, dict[str, str]]] = {
    "vm": {
        "launch_instance": f"{INSTANCE} requested_key_name key_name",
        "list_instances": "instances count found_target target_instance",
        "verify_tags": "instance_id tags tag_count",
        "serial_console": "instance_id console_available serial_access_enabled output_length",
        "console_rbac": "instance_id access_restricted restricted_actions tests",
        "component_key_access": "key_name tests",
        "virtual_device_hardening": "tests",
        "stop_instance": "instance_id state stop_initiated",
        "start_instance": "instance_id state start_initiated ssh_ready key_file public_ip",
        "reboot_instance": "instance_id state reboot_initiated ssh_ready reboot_confirmed key_file public_ip",
        "describe_instance": INSTANCE,
        "teardown": "message",
    },
    "control-plane": {
        "check_api": "account_id tests",
        "create_access_key": "access_key_id username",
        "create_tenant": "tenant_name tenant_id",
        "test_access_key": "authenticated identity_id",
        "disable_access_key": "status",
        "verify_key_rejected": "rejected error_code",
        "list_tenants": "found_target target_tenant count",
        "get_tenant": "tenant_name tenant_id description",
        "s3_object_lifecycle": "bucket_name object_key operations",
        "delete_access_key": "message",
        "delete_tenant": "message",
    },
    "iam": {
        "create_user": "username access_key_id",
        "test_credentials": "account_id tests",
        "teardown": "message",
    },
    "image-registry": {
        "upload_image": "image_id storage_bucket disk_ids",
        "crud_image": "image_id operations",
        "launch_instance": f"{INSTANCE} key_path",
        "crud_install_config": "config_id config_name operations",
        "teardown_instance": "message",
        "teardown_image": "message",
    },
    "storage": {
        "setup": "storage",
        "launch_instance": INSTANCE,
        "create_volume": "volume_id mount_point operations",
        "snapshot_lifecycle": "volume_id snapshot_id operations",
        "volume_resize": "volume_id operations",
        "volume_persistence": "volume_id operations",
        "provision_storage": "tests",
        "teardown_volume": "operations",
        "teardown": "message",
    },
    "observability": {
        "telemetry_delivery_latency": "tests",
        "north_south_network_telemetry": "tests",
        "host_nic_network_telemetry": "tests",
        "vpc_flow_logs": "tests",
        "host_syslogs": "tests",
        "storage_capacity_telemetry": "tests",
        "storage_performance_telemetry": "tests",
        "gpu_nvlink_telemetry": "tests",
        "fabric_manager_logs": "tests",
    },
    "security": {
        "preflight": "message",
        "api_endpoint_isolation": "endpoints_tested tests",
        "mutual_tls_test": "endpoints_tested tests",
        "insecure_protocols_test": "endpoints_tested tests",
        "mfa_enforcement": "interfaces_checked tests",
        "cert_rotation_test": "certs_inspected rotation_window_days out_of_policy tests",
        "kms_encryption_options_test": "tests",
        "centralized_kms_test": "tests",
        "customer_managed_key_test": "tests",
        "sa_credential_test": "authenticated credential_type credential_source identity expires_at",
        "oidc_user_auth_test": "issuer_url audience target_url endpoints_tested tests",
        "short_lived_credentials_test": "tests",
        "least_privilege_test": "test_identity allowed_resource tests",
        "audit_logging_test": "tests",
        "tenant_isolation_test": "tenant_a_id tenant_b_id tests",
        "capacity_reservation_grouping": "reservation_id account_id pinned isolation_enforced resources",
        "topology_block_atomic_allocation": "topology_block",
        "teardown": "message",
    },
    "network": {
        "create_network": "network_id cidr subnets",
        "list_vpcs": "vpcs count found_target",
        "get_vpc": "vpc_id vpc_name",
        "subnet_assignment": "tests",
        "vpc_crud": "tests",
        "subnet_config": "subnets tests",
        "vpc_isolation": "vpc_a vpc_b tests",
        "sg_crud": "tests",
        "security_blocking": "tests",
        "connectivity_test": "instances tests",
        "vpc_ip_config": "cidr subnets dhcp_options",
        "sg_workload_scoping": "scope tests",
        "sg_node_scoping": "scope tests",
        "sg_subnet_scoping": "scope tests",
        "sg_service_scoping": "scope tests",
        "sg_port_security_policy": "tests",
        "sg_policy_propagation": "tests",
        "sdn_hardware_fault_logging": "tests",
        "sdn_latency_perf_logging": "tests",
        "sdn_filter_audit_trail": "tests",
        "byoip_test": "tests",
        "stable_ip_test": "tests",
        "floating_ip_test": "tests",
        "dns_test": "tests",
        "peering_test": "tests",
        "storage_l3_routing": "tests",
        "nvlink_domain": "node_id nvlink_supported nvlink_domain_id tests",
        "teardown": "message",
    },
}
"""By suite and step, in their order. Each output has ``success``, ``platform`` and ``test_name`` too."""

PROBES: Final[dict[str, str]] = {
    "check_api": "server caller",
    "console_rbac": "denied_principal_cannot_access_console allowed_principal_can_access_console "
    "allowed_principal_is_resource_scoped",
    "component_key_access": "sol_access network_device_access",
    "virtual_device_hardening": "usb_devices_disabled clipboard_disabled unnecessary_virtual_devices_absent",
    "s3_object_lifecycle": "put get delete",
    "test_credentials": "identity access",
    "crud_image": "get list create delete",
    "crud_install_config": "create read update delete",
    "create_volume": "create attach format mount write_sentinel",
    "snapshot_lifecycle": "create_snapshot restore_volume verify_data",
    "volume_resize": "modify_volume grow_partition resize_filesystem verify_size",
    "volume_persistence": "stop start verify_attached verify_data",
    "provision_storage": "api_available provisioned capacity_matches",
    "telemetry_delivery_latency": "telemetry_endpoint_reachable delivery_sample_present delivery_within_threshold",
    "north_south_network_telemetry": "telemetry_endpoint_reachable plane_metrics_present samples_recent",
    "host_nic_network_telemetry": "telemetry_endpoint_reachable nic_metrics_present samples_recent",
    "vpc_flow_logs": "flow_log_endpoint_reachable flow_logs_configured traffic_type_all log_destination_accessible",
    "host_syslogs": "syslog_endpoint_reachable host_log_source_present entries_recent",
    "storage_capacity_telemetry": "telemetry_endpoint_reachable capacity_metrics_present samples_recent",
    "storage_performance_telemetry": "telemetry_endpoint_reachable performance_metrics_present samples_recent",
    "gpu_nvlink_telemetry": "telemetry_endpoint_reachable link_metrics_present samples_recent",
    "fabric_manager_logs": "log_endpoint_reachable log_source_present log_entries_queryable",
    "api_endpoint_isolation": "probe_api_from_public probe_mgmt_from_public verify_private_only dns_not_public",
    "mutual_tls_test": "north_south_mtls_enforced east_west_mtls_enforced",
    "insecure_protocols_test": "sslv3_disabled tlsv1_0_disabled tlsv1_1_disabled plain_http_disabled",
    "mfa_enforcement": "admin_account_mfa interactive_access_mfa programmatic_access_mfa",
    "cert_rotation_test": "cert_inventory_non_empty no_certs_out_of_policy rotation_evidence_present",
    "kms_encryption_options_test": "provider_managed_key_available customer_managed_key_available "
    "both_options_supported",
    "centralized_kms_test": "kms_service_reachable kms_keys_present all_encrypted_resources_use_kms",
    "customer_managed_key_test": "customer_managed_key_available key_manager_is_customer encrypt_decrypt_roundtrip "
    "resource_encrypted_with_customer_key provider_managed_key_not_used",
    "oidc_user_auth_test": "valid_token_accepted bad_signature_rejected wrong_issuer_rejected wrong_audience_rejected "
    "expired_token_rejected missing_required_claim_rejected discovery_and_jwks_reachable",
    "short_lived_credentials_test": "node_credential_has_expiry node_credential_ttl_within_bound "
    "workload_credential_has_expiry workload_credential_ttl_within_bound",
    "least_privilege_test": "policy_dimensions_user_based policy_dimensions_resource_based "
    "policy_dimensions_allowed_action_succeeds out_of_scope_compute_denied out_of_scope_storage_denied "
    "out_of_scope_network_denied",
    "audit_logging_test": "audit_log_entry_found audit_log_event_name_matches audit_log_event_time_in_window "
    "audit_log_user_identity_present audit_log_source_ip_present audit_log_user_agent_matches "
    "audit_log_region_matches audit_log_event_source_matches audit_log_trail_logging_enabled "
    "audit_log_retention_at_least_30_days",
    "tenant_isolation_test": "network_isolated data_isolated compute_isolated storage_isolated",
    "subnet_assignment": "subnet_assigned",
    "vpc_crud": "create_vpc read_vpc update_tags update_dns delete_vpc",
    "subnet_config": "create_subnets az_distribution subnets_available",
    "vpc_isolation": "no_peering no_cross_routes_a no_cross_routes_b",
    "sg_crud": "create_vpc create_sg read_sg update_sg_add_rule update_sg_modify_rule update_sg_remove_rule delete_sg "
    "verify_deleted",
    "security_blocking": "sg_default_deny_inbound sg_allows_specific_ssh sg_denies_vpc_icmp nacl_explicit_deny "
    "sg_restricted_egress",
    "sg_workload_scoping": _RULE.format("workload", "workload_allowed", "other_workload_blocked"),
    "sg_node_scoping": _RULE.format("node", "target_node_allowed", "other_node_blocked"),
    "sg_subnet_scoping": _RULE.format("subnet", "subnet_allowed", "other_subnet_blocked"),
    "sg_service_scoping": _RULE.format("service", "service_endpoint_allowed", "other_endpoint_blocked"),
    "sg_port_security_policy": "create_virtual_interface apply_port_policy allowed_port_permitted "
    "unlisted_port_blocked other_interface_unaffected cleanup",
    "sg_policy_propagation": "create_probe_rule rule_observed revoke_probe_rule removal_observed cleanup",
    "sdn_hardware_fault_logging": "logging_endpoint_reachable fault_event_source_queryable "
    "log_destination_configured event_schema_valid",
    "sdn_latency_perf_logging": "metrics_endpoint_reachable performance_metric_present packet_metric_present "
    "samples_recent",
    "sdn_filter_audit_trail": "audit_endpoint_reachable create_rule_logged modify_rule_logged delete_rule_logged "
    "audit_event_has_required_fields cleanup",
    "byoip_test": "custom_cidr_create custom_cidr_verify standard_cidr_create no_conflict custom_cidr_subnet",
    "stable_ip_test": "create_instance record_ip stop_instance start_instance ip_unchanged",
    "floating_ip_test": "allocate_eip associate_to_a verify_on_a reassociate_to_b verify_on_b verify_not_on_a",
    "dns_test": "create_vpc_with_dns create_hosted_zone create_dns_record verify_dns_settings resolve_record",
    "peering_test": "create_vpc_a create_vpc_b create_peering accept_peering add_routes peering_active",
    "storage_l3_routing": "distinct_subnets all_to_all_reachable cross_subnet_routing no_gateway_hop",
    "nvlink_domain": "node_resolved nvlink_support_detected nvlink_domain_id_present",
}
"""By step. A step may tell more than the suite reads."""
