package azclient

import (
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/cloud-provider-azure/pkg/azclient"
	"sigs.k8s.io/cloud-provider-azure/pkg/azclient/virtualmachinescalesetclient"
)

// A config is what the cloud provider reads of azure.json.
type config struct {
	azclient.ARMClientConfig
	azclient.AzureAuthConfig
	azclient.ClientFactoryConfig
	ResourceGroup string `json:"resourceGroup"`
}

// A Cloud is azsim as the client sees it.
type Cloud struct {
	azclient.ClientFactory
	Sets        *virtualmachinescalesetclient.Client
	Group       string
	AzureConfig string // path of its azure.json
}

// Connect connects the client by an azure.json.
func Connect(path string) (*Cloud, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c config
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	auth, err := azclient.NewAuthProvider(&c.ARMClientConfig, &c.AzureAuthConfig)
	if err != nil {
		return nil, err
	}
	f, err := azclient.NewClientFactory(&c.ClientFactoryConfig, &c.ARMClientConfig, auth.CloudConfig, auth.GetAzIdentity())
	if err != nil {
		return nil, err
	}
	sets, ok := f.GetVirtualMachineScaleSetClient().(*virtualmachinescalesetclient.Client)
	if !ok {
		return nil, fmt.Errorf("the scale sets' client is a %T", f.GetVirtualMachineScaleSetClient())
	}
	return &Cloud{ClientFactory: f, Sets: sets, Group: c.ResourceGroup, AzureConfig: path}, nil
}
