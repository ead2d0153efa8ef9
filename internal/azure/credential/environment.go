package credential

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/ortet/ortet/internal/fleet"
)

// absent says which variables are missing.
func absent(c Config, names ...string) error {
	var missing []string
	for _, n := range names {
		if c.Getenv(n) == "" {
			missing = append(missing, n)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s not set", errAbsent, strings.Join(missing, ", "))
}

// environmentLogin is what the environment says of the cloud and the client.
func (c Config) environmentLogin(ctx context.Context) (login, error) {
	file := cmp.Or(c.EnvironmentFile, c.Getenv("AZURE_ENVIRONMENT_FILEPATH"))
	name := c.Getenv("AZURE_ENVIRONMENT")
	if name == "" && file != "" {
		name = "AzureStackCloud"
	}
	e, err := c.cloudNamed(ctx, name, file, "")
	if err != nil {
		return login{}, err
	}
	l := login{where: e.where, ownInstance: e.own, tenant: c.Getenv("AZURE_TENANT_ID"), client: c.Getenv("AZURE_CLIENT_ID")}
	if h := c.Getenv("AZURE_AUTHORITY_HOST"); h != "" && !e.own {
		l.where.ActiveDirectoryAuthorityHost = h
	}
	if e.adfs {
		l.tenant = adfs
	}
	l.ownInstance = l.ownInstance || strings.EqualFold(l.tenant, adfs)
	return l, nil
}

func (c Config) environmentCredentials(l login, cred azcore.TokenCredential, source string) Credentials {
	return Credentials{
		Cloud: l.where, TokenCredential: cred, Transport: c.Transport, Tenant: l.tenant,
		Subscription: c.Getenv("AZURE_SUBSCRIPTION_ID"), ResourceGroup: c.Getenv("AZURE_RESOURCE_GROUP"), Location: c.Getenv("AZURE_LOCATION"),
		Source: source,
	}
}

// fromWorkload uses what the workload identity webhook puts into a pod.
func (c Config) fromWorkload(ctx context.Context) (Credentials, error) {
	if err := absent(c, "AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"); err != nil {
		return Credentials{}, err
	}
	l, err := c.environmentLogin(ctx)
	if err != nil {
		return Credentials{}, err
	}
	cred, err := c.withToken(l, c.Getenv("AZURE_FEDERATED_TOKEN_FILE"))
	if err != nil {
		return Credentials{}, err
	}
	return c.environmentCredentials(l, cred, "workload identity "+l.client), nil
}

// fromEnvironment uses a service principal named by the environment.
func (c Config) fromEnvironment(ctx context.Context) (Credentials, error) {
	if err := absent(c, "AZURE_CLIENT_ID", "AZURE_TENANT_ID"); err != nil {
		return Credentials{}, err
	}
	secret, cert := c.Getenv("AZURE_CLIENT_SECRET"), c.Getenv("AZURE_CLIENT_CERTIFICATE_PATH")
	if secret == "" && cert == "" {
		return Credentials{}, fmt.Errorf("%w: neither AZURE_CLIENT_SECRET nor AZURE_CLIENT_CERTIFICATE_PATH set", errAbsent)
	}
	l, err := c.environmentLogin(ctx)
	if err != nil {
		return Credentials{}, err
	}
	var cred azcore.TokenCredential
	if secret != "" {
		cred, err = c.withSecret(l, fleet.NewSecret(secret))
	} else {
		cred, err = c.withCertificate(l, cert, fleet.NewSecret(c.Getenv("AZURE_CLIENT_CERTIFICATE_PASSWORD")))
	}
	if err != nil {
		return Credentials{}, err
	}
	return c.environmentCredentials(l, cred, "environment, service principal "+l.client), nil
}

// fromCLI uses the account of the Azure CLI, in the cloud that is active there.
func (c Config) fromCLI(ctx context.Context) (Credentials, error) {
	data, err := c.Run(ctx, "az", "account", "show", "-o", "json")
	if errors.Is(err, exec.ErrNotFound) {
		return Credentials{}, fmt.Errorf("%w: there is no program az", errAbsent)
	}
	if err != nil {
		return Credentials{}, fmt.Errorf("%w: az account show: %w", errAbsent, err)
	}
	var account struct {
		ID       string `json:"id"`
		TenantID string `json:"tenantId"`
		User     struct {
			Name string `json:"name"`
		} `json:"user"`
	}
	if err := json.Unmarshal(data, &account); err != nil {
		return Credentials{}, fmt.Errorf("az account show: %w", err)
	}
	if data, err = c.Run(ctx, "az", "cloud", "show", "-o", "json"); err != nil {
		return Credentials{}, fmt.Errorf("az cloud show: %w", err)
	}
	e, err := parseCLICloud(data)
	if err != nil {
		return Credentials{}, fmt.Errorf("az cloud show: %w", err)
	}
	cred, err := azidentity.NewAzureCLICredential(&azidentity.AzureCLICredentialOptions{Subscription: account.ID})
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{
		Cloud: e.where, TokenCredential: cred, Transport: c.Transport,
		Subscription: account.ID, Tenant: account.TenantID, ResourceGroup: c.Getenv("AZURE_RESOURCE_GROUP"),
		Source: "Azure CLI, " + account.User.Name,
	}, nil
}

func parseCLICloud(data []byte) (endpoints, error) {
	var v struct {
		Endpoints struct {
			ResourceManager string `json:"resourceManager"`
			ActiveDirectory string `json:"activeDirectory"`
			Audience        string `json:"activeDirectoryResourceId"`
		} `json:"endpoints"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return endpoints{}, err
	}
	return stack(v.Endpoints.ResourceManager, v.Endpoints.ActiveDirectory, v.Endpoints.Audience)
}
