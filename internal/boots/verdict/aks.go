package verdict

// An AKSCode is an exit code of AKS's provisioning script, for Linux or Windows.
type AKSCode struct {
	Code   int
	Name   string // as the script calls it
	Reason string // of the catalogue
}

// AKSCodes are all that the script knows, in order, with those of earlier
// versions that images still give. Source of fact: Azure/AgentBaker,
// parts/linux/cloud-init/artifacts/cse_helpers.sh of 2026-08-21 (128 codes).
func AKSCodes(windows bool) []AKSCode {
	if windows {
		return append([]AKSCode(nil), aksWindowsCodes[:]...)
	}
	return append([]AKSCode(nil), aksCodes[:]...)
}

func aksReason(code int, windows bool) (AKSCode, bool) {
	codes := aksCodes[:]
	if windows {
		codes = aksWindowsCodes[:]
	}
	for i := range codes {
		if codes[i].Code == code {
			return codes[i], true
		}
	}
	return AKSCode{}, false
}

// A code is the script's own opinion; what it wrote beside it is nearer to the
// cause (codeRank). Codes that are called time-outs are given for whatever
// failed again and again.
var aksCodes = [...]AKSCode{
	{2, "ERR_SYSTEMCTL_MASK_FAIL", "UnitFailed"},
	{3, "ERR_SYSTEMCTL_ENABLE_FAIL", "UnitFailed"},
	{4, "ERR_SYSTEMCTL_START_FAIL", "UnitFailed"},
	{5, "ERR_CLOUD_INIT_TIMEOUT", "BootScriptMissing"},
	{6, "ERR_FILE_WATCH_TIMEOUT", "BootScriptMissing"},
	{7, "ERR_HOLD_WALINUXAGENT", "PackageInstallFailed"},
	{8, "ERR_RELEASE_HOLD_WALINUXAGENT", "PackageInstallFailed"},
	{9, "ERR_APT_INSTALL_TIMEOUT", "PackageInstallFailed"},
	{10, "ERR_MISSING_CUDA_PACKAGE", "GPUSetupFailed"},
	{20, "ERR_DOCKER_INSTALL_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{21, "ERR_DOCKER_DOWNLOAD_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{22, "ERR_DOCKER_KEY_DOWNLOAD_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{23, "ERR_DOCKER_APT_KEY_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{24, "ERR_DOCKER_START_FAIL", "ContainerdFailed"},
	{25, "ERR_MOBY_APT_LIST_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{26, "ERR_MS_GPG_KEY_DOWNLOAD_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{27, "ERR_MOBY_INSTALL_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{28, "ERR_CONTAINERD_INSTALL_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{29, "ERR_RUNC_INSTALL_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{30, "ERR_K8S_RUNNING_TIMEOUT", "APIServerUnavailable"},
	{31, "ERR_K8S_DOWNLOAD_TIMEOUT", "KubernetesInstallFailed"},
	{32, "ERR_KUBECTL_NOT_FOUND", "KubernetesInstallFailed"},
	{33, "ERR_IMG_DOWNLOAD_TIMEOUT", "ImagePullFailed"},
	{34, "ERR_KUBELET_START_FAIL", "KubeletCrashLoop"},
	{35, "ERR_DOCKER_IMG_PULL_TIMEOUT", "ImagePullFailed"},
	{36, "ERR_CONTAINERD_CTR_IMG_PULL_TIMEOUT", "ImagePullFailed"},
	{37, "ERR_CONTAINERD_CRICTL_IMG_PULL_TIMEOUT", "ImagePullFailed"},
	{38, "ERR_CONTAINERD_INSTALL_FILE_NOT_FOUND", "ContainerRuntimeInstallFailed"},
	{39, "ERR_CONTAINERD_VERSION_INVALID", "ContainerRuntimeInstallFailed"},
	{41, "ERR_CNI_DOWNLOAD_TIMEOUT", "CNIInstallFailed"},
	{42, "ERR_MS_PROD_DEB_DOWNLOAD_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{43, "ERR_MS_PROD_DEB_PKG_ADD_FAIL", "ContainerRuntimeInstallFailed"},
	{44, "ERR_FLEXVOLUME_DOWNLOAD_TIMEOUT", "DownloadFailed"},
	{45, "ERR_ORAS_DOWNLOAD_ERROR", "ArtifactPullFailed"},
	{48, "ERR_SYSTEMD_INSTALL_FAIL", "PackageInstallFailed"},
	{49, "ERR_MODPROBE_FAIL", "KernelSettingMissing"},
	{50, "ERR_OUTBOUND_CONN_FAIL", "OutboundBlocked"},
	{51, "ERR_K8S_API_SERVER_CONN_FAIL", "APIServerUnreachable"},
	{52, "ERR_K8S_API_SERVER_DNS_LOOKUP_FAIL", "APIServerNameUnknown"},
	{53, "ERR_K8S_API_SERVER_AZURE_DNS_LOOKUP_FAIL", "DNSFailed"},
	{60, "ERR_KATA_KEY_DOWNLOAD_TIMEOUT", "SandboxRuntimeInstallFailed"},
	{61, "ERR_KATA_APT_KEY_TIMEOUT", "SandboxRuntimeInstallFailed"},
	{62, "ERR_KATA_INSTALL_TIMEOUT", "SandboxRuntimeInstallFailed"},
	{65, "ERR_VHD_FILE_NOT_FOUND", "ImageBuildError"},
	{70, "ERR_CONTAINERD_DOWNLOAD_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{71, "ERR_RUNC_DOWNLOAD_TIMEOUT", "ContainerRuntimeInstallFailed"},
	{80, "ERR_CUSTOM_SEARCH_DOMAINS_FAIL", "SearchDomainsFailed"},
	{83, "ERR_GPU_DOWNLOAD_TIMEOUT", "GPUSetupFailed"},
	{84, "ERR_GPU_DRIVERS_START_FAIL", "GPUSetupFailed"},
	{85, "ERR_GPU_DRIVERS_INSTALL_TIMEOUT", "GPUSetupFailed"},
	{86, "ERR_GPU_DEVICE_PLUGIN_START_FAIL", "GPUSetupFailed"},
	{87, "ERR_GPU_INFO_ROM_CORRUPTED", "GPUBroken"},
	{90, "ERR_SGX_DRIVERS_INSTALL_TIMEOUT", "SandboxRuntimeInstallFailed"},
	{91, "ERR_SGX_DRIVERS_START_FAIL", "SandboxRuntimeInstallFailed"},
	{95, "ERR_AMDAMA_DRIVER_NOT_FOUND", "GPUSetupFailed"},
	{96, "ERR_AMDAMA_INSTALL_FAIL", "GPUSetupFailed"},
	{98, "ERR_APT_DAILY_TIMEOUT", "PackageManagerBusy"},
	{99, "ERR_APT_UPDATE_TIMEOUT", "PackageInstallFailed"},
	{100, "ERR_CSE_PROVISION_SCRIPT_NOT_READY_TIMEOUT", "BootScriptMissing"},
	{101, "ERR_APT_DIST_UPGRADE_TIMEOUT", "PackageInstallFailed"},
	{102, "ERR_APT_PURGE_FAIL", "PackageInstallFailed"},
	{103, "ERR_SYSCTL_RELOAD", "KernelSettingMissing"},
	{111, "ERR_CIS_ASSIGN_ROOT_PW", "HardeningFailed"},
	{112, "ERR_CIS_ASSIGN_FILE_PERMISSION", "HardeningFailed"},
	{113, "ERR_PACKER_COPY_FILE", "ImageBuildError"},
	{115, "ERR_CIS_APPLY_PASSWORD_CONFIG", "HardeningFailed"},
	{116, "ERR_SYSTEMD_DOCKER_STOP_FAIL", "ContainerRuntimeInstallFailed"},
	{117, "ERR_CRICTL_DOWNLOAD_TIMEOUT", "RuntimeToolFailed"},
	{118, "ERR_CRICTL_OPERATION_ERROR", "RuntimeToolFailed"},
	{119, "ERR_CTR_OPERATION_ERROR", "RuntimeToolFailed"},
	{120, "ERR_INVALID_CLI_TOOL", "RuntimeToolFailed"},
	{121, "ERR_KUBELET_INSTALL_FAIL", "KubernetesInstallFailed"},
	{122, "ERR_KUBECTL_INSTALL_FAIL", "KubernetesInstallFailed"},
	{123, "ERR_ENABLE_MANAGED_GPU_EXPERIENCE", "GPUSetupFailed"},
	{124, "timeout(1)", "BootScriptTimedOut"},
	{125, "ERR_VHD_BUILD_ERROR", "ImageBuildError"},
	{128, "ERR_NODE_EXPORTER_START_FAIL", "AKSProvisioningFailed"},
	{129, "ERR_DRA_DRIVER_START_FAIL", "GPUSetupFailed"},
	{130, "ERR_SWAP_CREATE_FAIL", "SwapFileFailed"},
	{131, "ERR_SWAP_CREATE_INSUFFICIENT_DISK_SPACE", "SwapFileFailed"},
	{150, "ERR_TELEPORTD_DOWNLOAD_ERR", "ArtifactStreamingFailed"},
	{151, "ERR_TELEPORTD_INSTALL_ERR", "ArtifactStreamingFailed"},
	{152, "ERR_ARTIFACT_STREAMING_DOWNLOAD", "ArtifactStreamingFailed"},
	{153, "ERR_ARTIFACT_STREAMING_INSTALL", "ArtifactStreamingFailed"},
	{154, "ERR_ARTIFACT_STREAMING_ACR_NODEMON_START_FAIL", "ArtifactStreamingFailed"},
	{160, "ERR_HTTP_PROXY_CA_CONVERT", "CertificateInstallFailed"},
	{161, "ERR_UPDATE_CA_CERTS", "CertificateInstallFailed"},
	{169, "ERR_SECURE_TLS_BOOTSTRAP_CLIENT_DOWNLOAD_ERROR", "SecureTLSBootstrapFailed"},
	{170, "ERR_DISBALE_IPTABLES", "FirewallSetupFailed"}, //nolint:misspell // AKS spells it so
	{172, "ERR_DISABLE_SSH", "SSHSetupFailed"},
	{173, "ERR_PRIMARY_NIC_IP_NOT_FOUND", "NICSetupFailed"},
	{174, "ERR_INSERT_IMDS_RESTRICTION_RULE_INTO_MANGLE_TABLE", "FirewallSetupFailed"},
	{175, "ERR_INSERT_IMDS_RESTRICTION_RULE_INTO_FILTER_TABLE", "FirewallSetupFailed"},
	{176, "ERR_DELETE_IMDS_RESTRICTION_RULE_FROM_MANGLE_TABLE", "FirewallSetupFailed"},
	{177, "ERR_DELETE_IMDS_RESTRICTION_RULE_FROM_FILTER_TABLE", "FirewallSetupFailed"},
	{178, "ERR_CONFIG_PUBKEY_AUTH_SSH", "SSHSetupFailed"},
	{200, "ERR_VHD_REBOOT_REQUIRED", "ImageBuildError"},
	{201, "ERR_NO_PACKAGES_FOUND", "ImageBuildError"},
	{202, "ERR_SNAPSHOT_UPDATE_START_FAIL", "AKSProvisioningFailed"},
	{203, "ERR_PRIVATE_K8S_PKG_ERR", "KubernetesInstallFailed"},
	{204, "ERR_K8S_INSTALL_ERR", "KubernetesInstallFailed"},
	{205, "ERR_CREDENTIAL_PROVIDER_DOWNLOAD_TIMEOUT", "ArtifactPullFailed"},
	{206, "ERR_CNI_VERSION_INVALID", "CNIInstallFailed"},
	{207, "ERR_ORAS_PULL_K8S_FAIL", "KubernetesInstallFailed"},
	{208, "ERR_ORAS_PULL_CREDENTIAL_PROVIDER", "ArtifactPullFailed"},
	{210, "ERR_ORAS_IMDS_TIMEOUT", "IMDSUnreachable"},
	{211, "ERR_ORAS_PULL_NETWORK_TIMEOUT", "ArtifactPullFailed"},
	{212, "ERR_ORAS_PULL_UNAUTHORIZED", "ImagePullUnauthorized"},
	{213, "ERR_LOOKUP_DISABLE_KUBELET_SERVING_CERTIFICATE_ROTATION_TAG", "AKSProvisioningFailed"},
	{214, "ERR_CLEANUP_CONTAINER_IMAGES", "RuntimeToolFailed"},
	{215, "ERR_DNS_HEALTH_FAIL", "DNSFailed"},
	{216, "ERR_LOCALDNS_FAIL", "LocalDNSFailed"},
	{217, "ERR_LOCALDNS_COREFILE_NOTFOUND", "LocalDNSFailed"},
	{218, "ERR_LOCALDNS_SLICEFILE_NOTFOUND", "LocalDNSFailed"},
	{219, "ERR_LOCALDNS_BINARY_ERR", "LocalDNSFailed"},
	{220, "ERR_SECURE_TLS_BOOTSTRAP_ENABLE_FAILURE", "SecureTLSBootstrapFailed"},
	{223, "ERR_CLOUD_INIT_FAILED", "BootScriptMissing"},
	{224, "ERR_NVIDIA_DRIVER_INSTALL", "GPUSetupFailed"},
	{225, "ERR_NVIDIA_GPG_KEY_DOWNLOAD_TIMEOUT", "GPUSetupFailed"},
	{226, "ERR_NVIDIA_AZURELINUX_REPO_FILE_DOWNLOAD_TIMEOUT", "GPUSetupFailed"},
	{227, "ERR_MANAGED_NVIDIA_EXP_INSTALL_FAIL", "GPUSetupFailed"},
	{228, "ERR_NVIDIA_DCGM_FAIL", "GPUSetupFailed"},
	{229, "ERR_NVIDIA_DCGM_EXPORTER_FAIL", "GPUSetupFailed"},
	{230, "ERR_LOOKUP_ENABLE_MANAGED_GPU_EXPERIENCE_TAG", "GPUSetupFailed"},
	{231, "ERR_ORAS_PULL_SYSEXT_FAIL", "ArtifactPullFailed"},
	{232, "ERR_SYSEXT_VERSION_ID_NOT_FOUND", "ArtifactPullFailed"},
	{233, "ERR_PULL_POD_INFRA_CONTAINER_IMAGE", "ImagePullFailed"},
	{234, "ERR_IMDS_FETCH_FAILED", "IMDSUnreachable"},
	{235, "ERR_NVIDIA_DCGM_INSTALL", "GPUSetupFailed"},
	{240, "ERR_AKS_NODE_CONTROLLER_ERROR", "AKSProvisioningFailed"},
	{241, "ERR_AZNFS_RPM_DOWNLOAD_TIMEOUT", "StorageClientInstallFailed"},
	{242, "ERR_AZNFS_INSTALL_FAIL", "StorageClientInstallFailed"},
	{243, "ERR_SECONDARY_NIC_CONFIG_FAIL", "NICSetupFailed"},
}
