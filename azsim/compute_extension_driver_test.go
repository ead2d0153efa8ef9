package azsim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// The NVIDIA driver's extension takes ten minutes, and fails on a size without GPUs.
func TestDriverExtension(t *testing.T) {
	for size, fails := range map[string]bool{"Standard_NC4as_T4_v3": false, "Standard_NV6ads_A10_v5": false, "Standard_NC24ads_A100_v4": false, "Standard_D2s_v5": true} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{}
			defer s.Close()
			l := newLab(t, s)
			body := pool(1)
			body.SKU.Name = ptr(size)
			driver := extension("driver")
			driver.Properties = &armcompute.VirtualMachineScaleSetExtensionProperties{Publisher: ptr("Microsoft.HpcCompute"), Type: ptr("NvidiaGpuDriverLinux"), TypeHandlerVersion: ptr("1.6")}
			withExtensions(driver)(&body)
			began := time.Now()
			p, err := l.sets.BeginCreateOrUpdate(context.Background(), labGroup, "pool1", body, nil)
			_, err = tryDone(p, err)
			if took := time.Since(began); took < 10*time.Minute || took > 20*time.Minute {
				t.Errorf("%s: made in %s", size, took)
			}
			if fails {
				wantRefusal(t, err, "VMExtensionProvisioningError", "exit code 13")
			} else if err != nil {
				t.Errorf("%s: %v", size, err)
			}
		})
	}
}
