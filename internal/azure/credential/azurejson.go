package credential

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/ortet/ortet/internal/fleet"
)

// azureJSON is what matters here of a cloud provider's configuration; see the
// documentation of cloud-provider-azure, "Cloud provider config". Unknown
// members are other programs' and are passed over.
type azureJSON struct {
	Cloud                   string `json:"cloud"`
	TenantID                string `json:"tenantId"`
	SubscriptionID          string `json:"subscriptionId"`
	ResourceGroup           string `json:"resourceGroup"`
	Location                string `json:"location"`
	ClientID                string `json:"aadClientId"`
	ClientSecret            string `json:"aadClientSecret"`
	ClientCertPath          string `json:"aadClientCertPath"`
	ClientCertPassword      string `json:"aadClientCertPassword"`
	UseManagedIdentity      bool   `json:"useManagedIdentityExtension"`
	UserAssignedIdentityID  string `json:"userAssignedIdentityID"`
	UseWorkloadIdentity     bool   `json:"useFederatedWorkloadIdentityExtension"`
	FederatedTokenFile      string `json:"aadFederatedTokenFile"`
	IdentitySystem          string `json:"identitySystem"`
	ResourceManagerEndpoint string `json:"resourceManagerEndpoint"`
}

// parse reads an azure.json. Its errors do not show values, which may be
// secrets.
func parse(data []byte) (azureJSON, error) {
	var a azureJSON
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))
	if err := d.Decode(&a); err != nil {
		var wrong *json.UnmarshalTypeError
		switch {
		case errors.As(err, &wrong) && wrong.Field != "":
			return azureJSON{}, fmt.Errorf("%q must be %s, but is a %s", wrong.Field, wantedValue(wrong.Type.Kind()), kindOfValue(wrong.Value))
		case errors.Is(err, io.EOF):
			return azureJSON{}, errors.New("the file is empty (aks-engine before 0.57 empties it when a node restarts)")
		case errors.Is(err, io.ErrUnexpectedEOF):
			return azureJSON{}, fmt.Errorf("no JSON: the file is cut off after %d bytes", len(data))
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return azureJSON{}, fmt.Errorf("no JSON: error at byte %d", syntax.Offset)
		}
		return azureJSON{}, errors.New("no JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return azureJSON{}, errors.New("no JSON: there is more after the object")
	}
	return a, nil
}

// wantedValue is what a field takes, in the words of JSON: Go's types mean nothing to whoever
// writes the file.
func wantedValue(kind reflect.Kind) string {
	if kind == reflect.Bool {
		return "true or false, without quotes"
	}
	return "a string"
}

// kindOfValue keeps the kind of encoding/json's description, which may name the
// value too: "number 12".
func kindOfValue(s string) string {
	kind, _, _ := strings.Cut(s, " ")
	return kind
}

// managed reports whether a managed identity is to be used. AKS Engine and
// kamino write "msi" as the client id.
func (a azureJSON) managed() bool {
	return a.UseManagedIdentity || strings.EqualFold(a.ClientID, "msi")
}

func (c Config) fromFile(ctx context.Context, path string) (Credentials, error) {
	data, err := readFile(path)
	if err != nil {
		return Credentials{}, err
	}
	a, err := parse(data)
	if err != nil {
		return Credentials{}, err
	}
	stack := cmp.Or(c.EnvironmentFile, c.Getenv("AZURE_ENVIRONMENT_FILEPATH"))
	if stack == "" {
		stack = filepath.Join(filepath.Dir(path), "azurestackcloud.json")
	}
	e, err := c.cloudNamed(ctx, a.Cloud, stack, a.ResourceManagerEndpoint)
	if err != nil {
		return Credentials{}, err
	}
	tenant := a.TenantID
	if strings.EqualFold(a.IdentitySystem, adfs) || e.adfs {
		tenant = adfs
	}
	l := login{where: e.where, ownInstance: e.own || strings.EqualFold(tenant, adfs), tenant: tenant, client: a.ClientID}
	need := func(kind string, fields map[string]string, order ...string) error {
		var missing []string
		for _, name := range order {
			if fields[name] == "" {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%s needs %s", kind, strings.Join(missing, " and "))
		}
		return nil
	}
	var cred azcore.TokenCredential
	var who string
	switch {
	case a.managed():
		who = "system-assigned managed identity"
		if a.UserAssignedIdentityID != "" {
			who = "user-assigned managed identity " + a.UserAssignedIdentityID
		}
		cred, err = c.withIdentity(e.where, a.UserAssignedIdentityID)
	case a.UseWorkloadIdentity:
		who = "workload identity " + a.ClientID
		file := cmp.Or(a.FederatedTokenFile, c.Getenv("AZURE_FEDERATED_TOKEN_FILE"))
		if err = need(who, map[string]string{"aadFederatedTokenFile": file, "aadClientId": a.ClientID, "tenantId": tenant},
			"aadFederatedTokenFile", "aadClientId", "tenantId"); err == nil {
			cred, err = c.withToken(l, file)
		}
	case a.ClientSecret != "":
		who = "service principal " + a.ClientID
		if err = need(who, map[string]string{"aadClientId": a.ClientID, "tenantId": tenant}, "aadClientId", "tenantId"); err == nil {
			cred, err = c.withSecret(l, fleet.NewSecret(a.ClientSecret))
		}
	case a.ClientCertPath != "":
		who = "service principal " + a.ClientID + " by certificate"
		if err = need(who, map[string]string{"aadClientId": a.ClientID, "tenantId": tenant}, "aadClientId", "tenantId"); err == nil {
			cred, err = c.withCertificate(l, a.ClientCertPath, fleet.NewSecret(a.ClientCertPassword))
		}
	default:
		err = errors.New("no way to log in: set aadClientId with aadClientSecret or aadClientCertPath, or useManagedIdentityExtension, or useFederatedWorkloadIdentityExtension")
	}
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{
		Cloud: e.where, TokenCredential: cred, Transport: c.Transport,
		Subscription: a.SubscriptionID, Tenant: tenant, ResourceGroup: a.ResourceGroup, Location: a.Location,
		Source: "azure.json " + path + ", " + who,
	}, nil
}
