package arm

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime/datetime"
)

// The models of armcompute read their JSON anew at every level of it, which for
// an instance with its view takes a third of a millisecond: a third of a second
// for the instances of a large pool, each time they are listed, in a pod that may
// have a tenth of a processor. So of what is asked for most (scale sets, their
// instances, disks, snapshots and image versions) the members that are wanted are
// read in one pass; the request, its paging and its errors stay those of the SDK's
// clients.

type answerKey struct{}

// reading makes the answer to a request with this context be read into a pointer
// to one of the types below; what the client itself returns is then empty, but for
// a list's nextLink.
func reading(ctx context.Context, into any) context.Context {
	return context.WithValue(ctx, answerKey{}, into)
}

// An answerPolicy reads the answers for which reading asks.
type answerPolicy struct{}

func (answerPolicy) Do(r *policy.Request) (*http.Response, error) {
	resp, err := r.Next()
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	into := r.Raw().Context().Value(answerKey{})
	if into == nil {
		return resp, nil
	}
	data, err := runtime.Payload(resp)
	if err != nil {
		return nil, err
	}
	rest := "{}"
	if data = bytes.TrimPrefix(data, []byte("\ufeff")); len(data) > 0 { // as the SDK does
		if err := json.Unmarshal(data, into); err != nil {
			return nil, err
		}
	}
	if list, isList := into.(interface{ next() string }); isList && list.next() != "" {
		link, err := json.Marshal(map[string]string{"nextLink": list.next()})
		if err != nil {
			return nil, err
		}
		rest = string(link)
	}
	resp.Body = io.NopCloser(strings.NewReader(rest))
	return resp, nil
}

// A page is one of a list.
type page[T any] struct {
	Value    []*T   `json:"value"`
	NextLink string `json:"nextLink"`
}

func (p *page[T]) next() string { return p.NextLink }

// instanceAnswer is what is wanted of a VirtualMachineScaleSetVM.
type instanceAnswer struct {
	ID         string   `json:"id"`
	InstanceID string   `json:"instanceId"`
	Name       string   `json:"name"`
	Zones      []string `json:"zones"`
	SKU        struct {
		Name string `json:"name"`
	} `json:"sku"`
	Properties struct {
		VMID               string `json:"vmId"`
		ProvisioningState  string `json:"provisioningState"`
		LatestModelApplied bool   `json:"latestModelApplied"`
		OSProfile          struct {
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

type diskAnswer struct {
	ID string `json:"id"`
}

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
	Properties *struct {
		ProvisioningState string `json:"provisioningState"`
		OrchestrationMode string `json:"orchestrationMode"`
		Overprovision     bool   `json:"overprovision"`
		UpgradePolicy     struct {
			Mode                     string `json:"mode"`
			AutomaticOSUpgradePolicy struct {
				EnableAutomaticOSUpgrade bool `json:"enableAutomaticOSUpgrade"`
			} `json:"automaticOSUpgradePolicy"`
		} `json:"upgradePolicy"`
		AutomaticRepairsPolicy struct {
			Enabled bool `json:"enabled"`
		} `json:"automaticRepairsPolicy"`
		VirtualMachineProfile *profileAnswer `json:"virtualMachineProfile"`
	} `json:"properties"`
}

// profileAnswer is what is wanted of a scale set's model.
type profileAnswer struct {
	Priority       string `json:"priority"`
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
		Publisher                     string    `json:"publisher"`
		Type                          string    `json:"type"`
		TypeHandlerVersion            string    `json:"typeHandlerVersion"`
		ProvisionAfterExtensions      []string  `json:"provisionAfterExtensions"`
		ProtectedSettingsFromKeyVault *struct{} `json:"protectedSettingsFromKeyVault"`
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
