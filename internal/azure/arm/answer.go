package arm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime/datetime"

	"github.com/ortet/ortet/internal/fleet"
)

// The models of armcompute read their JSON anew at every level of it, which for
// an instance with its view takes a third of a millisecond: a third of a second
// for the instances of a large pool, each time they are listed, in a pod that may
// have a tenth of a processor. So what is read most (scale sets, their instances,
// disks, snapshots and image versions) is read here, in one pass and only the members
// that are wanted.

// The versions of what is read are those of armcompute's clients, which change it.
const (
	computeVersion = "2026-04-01"
	diskVersion    = "2026-03-02"
	galleryVersion = "2025-12-03"
)

// address is the URL of a resource. query are names and values.
func (c *Cloud) address(id fleet.ResourceID, version string, query ...string) string {
	u, q := url.URL{Path: string(id)}, url.Values{"api-version": {version}}
	for i := 0; i+1 < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	return runtime.JoinPaths(c.raw.Endpoint(), u.EscapedPath()) + "?" + strings.ReplaceAll(q.Encode(), "+", "%20")
}

// get reads what is at a URL, through the pipeline that keeps our token at home.
func (c *Cloud) get(ctx context.Context, address string, into any) error {
	req, err := runtime.NewRequest(ctx, http.MethodGet, address)
	if err != nil {
		return err
	}
	req.Raw().Header.Set("Accept", "application/json")
	resp, err := c.raw.Pipeline().Do(req) //nolint:bodyclose // the SDK has read and closed it
	if err != nil {
		return err
	}
	if !runtime.HasStatusCode(resp, http.StatusOK) {
		return runtime.NewResponseError(resp)
	}
	return runtime.UnmarshalAsJSON(resp, into)
}

// brokenOffError is the error of a page after a list's first.
type brokenOffError struct{ error }

func (e brokenOffError) Unwrap() error { return e.error }

// list reads a list page by page. It ends with the first error of do.
func list[T any](ctx context.Context, c *Cloud, address string, do func(*T) error) error {
	for n := 0; address != ""; n++ {
		if n == maxPages {
			return endless("", "")
		}
		var page struct {
			Value    []*T   `json:"value"`
			NextLink string `json:"nextLink"`
		}
		if err := c.get(ctx, address, &page); err != nil && n > 0 {
			return brokenOffError{err}
		} else if err != nil {
			return err
		}
		for _, v := range page.Value {
			if v == nil {
				continue
			}
			if err := do(v); err != nil {
				return err
			}
		}
		if address = page.NextLink; address == "" {
			break
		}
		// Azure writes blanks into next links of a list with $filter; the SDK's pager
		// encodes them, too.
		next, err := runtime.EncodeQueryParams(address)
		if err != nil {
			return brokenOffError{fmt.Errorf("read the next link %q: %w", address, err)}
		}
		address = next
	}
	return nil
}

// instanceAnswer is what is wanted of a VirtualMachineScaleSetVM.
type instanceAnswer struct {
	ID         string            `json:"id"`
	InstanceID string            `json:"instanceId"`
	Name       string            `json:"name"`
	Zones      []string          `json:"zones"`
	Tags       map[string]string `json:"tags"` // of a virtual machine
	SKU        struct {
		Name string `json:"name"`
	} `json:"sku"`
	Properties struct {
		VMID               string `json:"vmId"`
		TimeCreated        moment `json:"timeCreated"`
		ProvisioningState  string `json:"provisioningState"`
		LatestModelApplied bool   `json:"latestModelApplied"`
		// Of a virtual machine alone.
		VirtualMachineScaleSet link `json:"virtualMachineScaleSet"`
		OSProfile              struct {
			ComputerName string `json:"computerName"`
		} `json:"osProfile"`
		HardwareProfile struct {
			VMSize string `json:"vmSize"`
		} `json:"hardwareProfile"`
		ProtectionPolicy *struct {
			ProtectFromScaleIn         bool `json:"protectFromScaleIn"`
			ProtectFromScaleSetActions bool `json:"protectFromScaleSetActions"`
		} `json:"protectionPolicy"`
		SecurityProfile struct {
			SecurityType string `json:"securityType"`
		} `json:"securityProfile"`
		StorageProfile struct {
			ImageReference *imageAnswer `json:"imageReference"`
			OSDisk         struct {
				DiffDiskSettings *struct{}  `json:"diffDiskSettings"`
				DiskSizeGB       int32      `json:"diskSizeGB"`
				ManagedDisk      diskAnswer `json:"managedDisk"`
			} `json:"osDisk"`
			DataDisks []*struct {
				LUN         int32       `json:"lun"`
				ManagedDisk *diskAnswer `json:"managedDisk"`
			} `json:"dataDisks"`
		} `json:"storageProfile"`
		InstanceView struct {
			HyperVGeneration string `json:"hyperVGeneration"`
			Statuses         []*struct {
				Code string `json:"code"`
			} `json:"statuses"`
		} `json:"instanceView"`
	} `json:"properties"`
}

// link is a reference to another resource.
type link struct {
	ID string `json:"id"`
}

type diskAnswer = link

// imageAnswer is an ImageReference.
type imageAnswer struct {
	ID           string `json:"id"`
	Publisher    string `json:"publisher"`
	Offer        string `json:"offer"`
	SKU          string `json:"sku"`
	Version      string `json:"version"`
	ExactVersion string `json:"exactVersion"`
	Shared       string `json:"sharedGalleryImageId"`
	Community    string `json:"communityGalleryImageId"`
}

// setAnswer is what is wanted of a VirtualMachineScaleSet.
type setAnswer struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Location string            `json:"location"`
	Etag     string            `json:"etag"`
	Tags     map[string]string `json:"tags"`
	Zones    []string          `json:"zones"`
	SKU      *struct {
		Name     string `json:"name"`
		Tier     string `json:"tier"`
		Capacity *int64 `json:"capacity"`
	} `json:"sku"`
	Identity struct {
		Type     string              `json:"type"`
		Assigned map[string]struct{} `json:"userAssignedIdentities"`
	} `json:"identity"`
	Properties *struct {
		ProvisioningState string `json:"provisioningState"`
		OrchestrationMode string `json:"orchestrationMode"`
		Overprovision     bool   `json:"overprovision"`
		ScaleInPolicy     struct {
			Rules []string `json:"rules"`
		} `json:"scaleInPolicy"`
		UpgradePolicy struct {
			Mode                     string `json:"mode"`
			AutomaticOSUpgradePolicy struct {
				EnableAutomaticOSUpgrade bool `json:"enableAutomaticOSUpgrade"`
			} `json:"automaticOSUpgradePolicy"`
		} `json:"upgradePolicy"`
		ResiliencyPolicy struct {
			ResilientVMCreationPolicy struct {
				Enabled bool `json:"enabled"`
			} `json:"resilientVMCreationPolicy"`
		} `json:"resiliencyPolicy"`
		AutomaticRepairsPolicy struct {
			Enabled bool `json:"enabled"`
		} `json:"automaticRepairsPolicy"`
		VirtualMachineProfile   *profileAnswer `json:"virtualMachineProfile"`
		HostGroup               link           `json:"hostGroup"`
		ProximityPlacementGroup link           `json:"proximityPlacementGroup"`
		AdditionalCapabilities  struct {
			HibernationEnabled bool `json:"hibernationEnabled"`
		} `json:"additionalCapabilities"`
		SKUProfile struct {
			VMSizes []struct {
				Name string `json:"name"`
			} `json:"vmSizes"`
		} `json:"skuProfile"`
	} `json:"properties"`
}

func (v *setAnswer) flexible() bool {
	return v.Properties != nil && strings.EqualFold(v.Properties.OrchestrationMode, fleet.Flexible)
}

// profileAnswer is what is wanted of a scale set's model.
type profileAnswer struct {
	TimeCreated         moment `json:"timeCreated"`
	Priority            string `json:"priority"`
	CapacityReservation struct {
		CapacityReservationGroup link `json:"capacityReservationGroup"`
	} `json:"capacityReservation"`
	EvictionPolicy string `json:"evictionPolicy"`
	StorageProfile struct {
		ImageReference     *imageAnswer `json:"imageReference"`
		DiskControllerType string       `json:"diskControllerType"`
		OSDisk             struct {
			DiffDiskSettings *struct{} `json:"diffDiskSettings"`
			DiskSizeGB       int32     `json:"diskSizeGB"`
			OSType           string    `json:"osType"`
			ManagedDisk      struct {
				StorageAccountType string `json:"storageAccountType"`
				DiskEncryptionSet  link   `json:"diskEncryptionSet"`
			} `json:"managedDisk"`
		} `json:"osDisk"`
	} `json:"storageProfile"`
	OSProfile struct {
		LinuxConfiguration *struct{} `json:"linuxConfiguration"`
	} `json:"osProfile"`
	SecurityProfile struct {
		SecurityType string `json:"securityType"`
	} `json:"securityProfile"`
	NetworkProfile struct {
		NetworkInterfaceConfigurations []*struct {
			Properties struct {
				EnableAcceleratedNetworking bool `json:"enableAcceleratedNetworking"`
				NetworkSecurityGroup        link `json:"networkSecurityGroup"`
				IPConfigurations            []struct {
					Properties struct {
						Subnet                          link   `json:"subnet"`
						LoadBalancerBackendAddressPools []link `json:"loadBalancerBackendAddressPools"`
						ApplicationSecurityGroups       []link `json:"applicationSecurityGroups"`
						PublicIPAddressConfiguration    struct {
							Properties struct {
								PublicIPPrefix link `json:"publicIPPrefix"`
							} `json:"properties"`
						} `json:"publicIPAddressConfiguration"`
					} `json:"properties"`
				} `json:"ipConfigurations"`
			} `json:"properties"`
		} `json:"networkInterfaceConfigurations"`
	} `json:"networkProfile"`
	ExtensionProfile struct {
		Extensions []*extensionAnswer `json:"extensions"`
	} `json:"extensionProfile"`
}

// extensionAnswer is what is wanted of an extension of a model.
type extensionAnswer struct {
	Name       string `json:"name"`
	Properties *struct {
		Publisher                     string          `json:"publisher"`
		Type                          string          `json:"type"`
		TypeHandlerVersion            string          `json:"typeHandlerVersion"`
		AutoUpgradeMinorVersion       bool            `json:"autoUpgradeMinorVersion"`
		EnableAutomaticUpgrade        bool            `json:"enableAutomaticUpgrade"`
		ForceUpdateTag                string          `json:"forceUpdateTag"`
		SuppressFailures              bool            `json:"suppressFailures"`
		Settings                      json.RawMessage `json:"settings"`
		ProvisionAfterExtensions      []string        `json:"provisionAfterExtensions"`
		ProtectedSettingsFromKeyVault *struct {
			SecretURL   string `json:"secretUrl"`
			SourceVault struct {
				ID string `json:"id"`
			} `json:"sourceVault"`
		} `json:"protectedSettingsFromKeyVault"`
	} `json:"properties"`
}

// storedAnswer is what is wanted of a Disk or a Snapshot.
type storedAnswer struct {
	ID        string            `json:"id"`
	Location  string            `json:"location"`
	ManagedBy string            `json:"managedBy"`
	Tags      map[string]string `json:"tags"`
	Zones     []string          `json:"zones"`
	SKU       struct {
		Name string `json:"name"`
	} `json:"sku"`
	Properties struct {
		DiskSizeGB        int32            `json:"diskSizeGB"`
		HyperVGeneration  string           `json:"hyperVGeneration"`
		ProvisioningState string           `json:"provisioningState"`
		TimeCreated       datetime.RFC3339 `json:"timeCreated"`
		CreationData      struct {
			SourceResourceID      *string     `json:"sourceResourceId"`
			GalleryImageReference *diskAnswer `json:"galleryImageReference"`
			ImageReference        *diskAnswer `json:"imageReference"`
		} `json:"creationData"`
		SupportedCapabilities struct {
			Architecture        string `json:"architecture"`
			DiskControllerTypes string `json:"diskControllerTypes"`
		} `json:"supportedCapabilities"`
		SecurityProfile struct {
			SecurityType string `json:"securityType"`
		} `json:"securityProfile"`
		SupportsHibernation bool `json:"supportsHibernation"`
		Encryption          struct {
			DiskEncryptionSetID string `json:"diskEncryptionSetId"`
		} `json:"encryption"`
		EncryptionSettingsCollection struct {
			Enabled bool `json:"enabled"`
		} `json:"encryptionSettingsCollection"`
	} `json:"properties"`
}

// encryptionSetAnswer is what is wanted of a DiskEncryptionSet.
type encryptionSetAnswer struct {
	ID         string `json:"id"`
	Location   string `json:"location"`
	Properties struct {
		EncryptionType       string `json:"encryptionType"`
		ProvisioningState    string `json:"provisioningState"`
		AutoKeyRotationError *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"autoKeyRotationError"`
	} `json:"properties"`
}

// tagged is nil for no tags, as the SDK's models have it.
func tagged(tags map[string]string) map[string]string {
	if len(tags) == 0 {
		return nil
	}
	return tags
}

// versionAnswer is what is wanted of a GalleryImageVersion.
type versionAnswer struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		ProvisioningState string `json:"provisioningState"`
		PublishingProfile struct {
			PublishedDate      datetime.RFC3339 `json:"publishedDate"`
			EndOfLifeDate      datetime.RFC3339 `json:"endOfLifeDate"`
			ExcludeFromLatest  bool             `json:"excludeFromLatest"`
			ReplicaCount       int32            `json:"replicaCount"`
			StorageAccountType string           `json:"storageAccountType"`
			ReplicationMode    string           `json:"replicationMode"`
			TargetRegions      []*struct {
				Name                 string `json:"name"`
				RegionalReplicaCount *int32 `json:"regionalReplicaCount"`
				StorageAccountType   string `json:"storageAccountType"`
				ExcludeFromLatest    bool   `json:"excludeFromLatest"`
			} `json:"targetRegions"`
		} `json:"publishingProfile"`
		SafetyProfile struct {
			BlockDeletionBeforeEndOfLife bool `json:"blockDeletionBeforeEndOfLife"`
		} `json:"safetyProfile"`
		StorageProfile struct {
			OSDiskImage struct {
				Source diskAnswer `json:"source"`
			} `json:"osDiskImage"`
			Source struct {
				ID               string `json:"id"`
				VirtualMachineID string `json:"virtualMachineId"`
			} `json:"source"`
		} `json:"storageProfile"`
		ReplicationStatus struct {
			Summary []*struct {
				Region   string `json:"region"`
				State    string `json:"state"`
				Details  string `json:"details"`
				Progress *int32 `json:"progress"`
			} `json:"summary"`
		} `json:"replicationStatus"`
	} `json:"properties"`
}
