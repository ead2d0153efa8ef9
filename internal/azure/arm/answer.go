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
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// The models of armcompute read their JSON anew at every level of it, which for
// an instance with its view takes a third of a millisecond: a third of a second
// for the instances of a large pool, each time they are listed, in a pod that may
// have a tenth of a processor. So of instances and image versions, which are asked
// for most, the members that are wanted are read in one pass; the request, its
// paging and its errors stay those of the SDK's clients.

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
		ProtectionPolicy struct {
			ProtectFromScaleIn         bool `json:"protectFromScaleIn"`
			ProtectFromScaleSetActions bool `json:"protectFromScaleSetActions"`
		} `json:"protectionPolicy"`
		SecurityProfile struct {
			SecurityType string `json:"securityType"`
		} `json:"securityProfile"`
		StorageProfile struct {
			ImageReference *armcompute.ImageReference `json:"imageReference"`
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
