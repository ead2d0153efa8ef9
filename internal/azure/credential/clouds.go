package credential

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
)

// adfs is the tenant of clouds whose users are in Active Directory Federation
// Services instead of Entra.
const adfs = "adfs"

// An endpoints is where a cloud is.
type endpoints struct {
	where cloud.Configuration
	own   bool // not a cloud that the public log-in host knows
	adfs  bool
}

// cloudNamed returns the cloud of that name, as cloud providers spell it. An
// AzureStackCloud is described by its endpoint file, or describes itself at its
// resource manager's endpoint.
func (c Config) cloudNamed(ctx context.Context, name, stackFile, resourceManager string) (endpoints, error) {
	switch strings.ToUpper(name) {
	case "", "AZUREPUBLICCLOUD", "AZURECLOUD", "AZUREPUBLIC":
		if resourceManager == "" {
			return endpoints{where: cloud.AzurePublic}, nil
		}
	case "AZUREUSGOVERNMENTCLOUD", "AZUREUSGOVERNMENT":
		return endpoints{where: cloud.AzureGovernment}, nil
	case "AZURECHINACLOUD":
		return endpoints{where: cloud.AzureChina}, nil
	case "AZURESTACKCLOUD":
	default:
		return endpoints{}, fmt.Errorf("cloud %q is unknown: AzurePublicCloud, AzureUSGovernmentCloud, AzureChinaCloud and AzureStackCloud are known", name)
	}
	data, err := readFile(stackFile)
	switch {
	case err == nil:
		e, err := parseEndpoints(data)
		if err != nil {
			return e, fmt.Errorf("endpoint file %s: %w", stackFile, err)
		}
		return e, nil
	case errors.Is(err, os.ErrNotExist) && resourceManager != "":
		return c.discover(ctx, resourceManager)
	}
	return endpoints{}, fmt.Errorf("cloud AzureStackCloud needs an endpoint file: %w", err)
}

// parseEndpoints reads an endpoint file: the environment file of go-autorest,
// which AKS Engine writes to /etc/kubernetes/azurestackcloud.json.
func parseEndpoints(data []byte) (endpoints, error) {
	var f struct {
		ResourceManager string `json:"resourceManagerEndpoint"`
		ActiveDirectory string `json:"activeDirectoryEndpoint"`
		Management      string `json:"serviceManagementEndpoint"`
		TokenAudience   string `json:"tokenAudience"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return endpoints{}, err
	}
	audience := cmp.Or(f.TokenAudience, f.Management)
	return stack(f.ResourceManager, f.ActiveDirectory, audience)
}

// stack makes the endpoints of a cloud of one's own.
func stack(resourceManager, activeDirectory, audience string) (endpoints, error) {
	e := endpoints{own: true}
	for name, s := range map[string]string{"resourceManagerEndpoint": resourceManager, "activeDirectoryEndpoint": activeDirectory} {
		if err := checkEndpoint(s); err != nil {
			return endpoints{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	audience = cmp.Or(audience, resourceManager)
	// The log-in address of an ADFS ends in the name that takes the tenant's
	// place, which azidentity adds again.
	host := strings.TrimRight(activeDirectory, "/")
	if h, ok := strings.CutSuffix(host, "/"+adfs); ok {
		host, e.adfs = h, true
	}
	e.where = cloud.Configuration{
		ActiveDirectoryAuthorityHost: host + "/",
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: strings.TrimRight(resourceManager, "/"), Audience: audience},
		},
	}
	return e, nil
}

// checkEndpoint refuses what is no address of a cloud. A user in it would be sent
// along, and shown in errors.
func checkEndpoint(s string) error {
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "@"):
		return errors.New("an endpoint has no user and no @ in it")
	case err != nil || u.Scheme != "https" || u.Host == "" || strings.ContainsAny(s, "?#"):
		return fmt.Errorf("%q is no https URL of an endpoint", s)
	}
	return nil
}

// discover asks a resource manager to describe its cloud.
func (c Config) discover(ctx context.Context, resourceManager string) (endpoints, error) {
	if err := checkEndpoint(resourceManager); err != nil {
		return endpoints{}, fmt.Errorf("resourceManagerEndpoint: %w", err)
	}
	base := strings.TrimRight(resourceManager, "/")
	fail := func(err error) (endpoints, error) {
		return endpoints{}, fmt.Errorf("ask %s for its endpoints: %w", base, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metadata/endpoints?api-version=2015-01-01", nil)
	if err != nil {
		return fail(err)
	}
	resp, err := c.Transport.Do(req)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to the limit
	if resp.StatusCode != http.StatusOK {
		return fail(errors.New(resp.Status))
	}
	var m struct {
		Authentication struct {
			LoginEndpoint string   `json:"loginEndpoint"`
			Audiences     []string `json:"audiences"`
		} `json:"authentication"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxFile)).Decode(&m); err != nil {
		return fail(err)
	}
	audience := ""
	if len(m.Authentication.Audiences) > 0 {
		audience = m.Authentication.Audiences[0]
	}
	e, err := stack(base, m.Authentication.LoginEndpoint, audience)
	if err != nil {
		return fail(err)
	}
	return e, nil
}
