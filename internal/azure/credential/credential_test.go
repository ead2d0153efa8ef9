package credential_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/fleet"
)

const group = fleet.ResourceID("/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup)

// sim is a simulated Azure over TLS whose authority only caFile names.
func sim(t *testing.T, ps ...azsim.Principal) (base, caFile string) {
	t.Helper()
	s := &azsim.Server{Principals: append([]azsim.Principal{{Name: "owner", ClientID: azsim.DefaultClientID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "Owner"}}}}, ps...)}
	web := httptest.NewTLSServer(s)
	t.Cleanup(func() {
		web.Close()
		s.Close()
	})
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	write(t, caFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})))
	return web.URL, caFile
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func object(t *testing.T, m map[string]any) string {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func stackFile(base string) map[string]any {
	return map[string]any{"name": "AzureStackCloud", "resourceManagerEndpoint": base + "/", "activeDirectoryEndpoint": base + "/",
		"serviceManagementEndpoint": base + "/", "tokenAudience": base + "/", "resourceIdentifiers": map[string]any{"graph": ""}}
}

func azureJSON(change map[string]any) map[string]any {
	m := map[string]any{"cloud": "AzureStackCloud", "tenantId": "adfs", "subscriptionId": azsim.DefaultSubscription, "resourceGroup": azsim.DefaultResourceGroup,
		"location": "westeurope", "vmType": "vmss", "aadClientId": azsim.DefaultClientID, "aadClientSecret": azsim.DefaultClientSecret,
		"loadBalancerSku": "Standard", "excludeMasterFromStandardLB": true, "cloudProviderBackoffRetries": 6}
	for k, v := range change {
		if v == nil {
			delete(m, k)
		} else {
			m[k] = v
		}
	}
	return m
}

// works logs in and reads something.
func works(t *testing.T, cr credential.Credentials) error {
	t.Helper()
	c, err := arm.New(arm.Options{Cloud: cr.Cloud, Credential: cr.TokenCredential, Transport: cr.Transport})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Denied(t.Context(), group, []string{"Microsoft.Compute/disks/read"})
	return err
}

func load(t *testing.T, c credential.Config) credential.Credentials {
	t.Helper()
	cr, err := credential.Load(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return cr
}

func env(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

func TestServicePrincipalOfAzureJSON(t *testing.T) {
	base, ca := sim(t)
	for name, tc := range map[string]struct {
		config map[string]any
		stack  map[string]any // nil: no endpoint file
	}{
		"endpoint file beside it": {azureJSON(nil), stackFile(base)},
		"asks for the endpoints":  {azureJSON(map[string]any{"resourceManagerEndpoint": base + "/"}), nil},
		"identity system":         {azureJSON(map[string]any{"identitySystem": "ADFS", "tenantId": "0000"}), stackFile(base)},
		"log-in address of ADFS":  {azureJSON(map[string]any{"tenantId": ""}), func() map[string]any { m := stackFile(base); m["activeDirectoryEndpoint"] = base + "/adfs"; return m }()},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "azure.json"), "\xef\xbb\xbf"+object(t, tc.config))
			if tc.stack != nil {
				write(t, filepath.Join(dir, "azurestackcloud.json"), object(t, tc.stack))
			}
			cr := load(t, credential.Config{File: filepath.Join(dir, "azure.json"), CAFile: ca})
			if cr.Subscription != azsim.DefaultSubscription || cr.ResourceGroup != azsim.DefaultResourceGroup || cr.Location != "westeurope" || cr.Tenant != "adfs" {
				t.Errorf("%+v", cr)
			}
			if !strings.Contains(cr.Source, "service principal "+azsim.DefaultClientID) || strings.Contains(cr.Source, azsim.DefaultClientSecret) {
				t.Errorf("source %q", cr.Source)
			}
			if err := works(t, cr); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("wrong secret", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "azure.json"), object(t, azureJSON(map[string]any{"aadClientSecret": "wr0ng-secret"})))
		write(t, filepath.Join(dir, "azurestackcloud.json"), object(t, stackFile(base)))
		err := works(t, load(t, credential.Config{File: filepath.Join(dir, "azure.json"), CAFile: ca}))
		if !fleet.Is(err, fleet.KindUnauthenticated) || strings.Contains(err.Error(), "wr0ng-secret") || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "401 invalid_client: AADSTS7000215") {
			t.Errorf("%v", err)
		}
	})
	t.Run("authority that nobody trusts", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "azure.json"), object(t, azureJSON(nil)))
		write(t, filepath.Join(dir, "azurestackcloud.json"), object(t, stackFile(base)))
		if err := works(t, load(t, credential.Config{File: filepath.Join(dir, "azure.json")})); !fleet.Is(err, fleet.KindInvalid) || !strings.Contains(err.Error(), "certificate authority") {
			t.Errorf("an unknown authority: %v", err)
		}
	})
}

// asIMDS sends what goes to the metadata service to the handler, as an
// instance's network does.
type asIMDS struct {
	next    policy.Transporter
	imds    http.Handler
	queries []url.Values
}

func (a *asIMDS) Do(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "169.254.169.254" {
		return a.next.Do(r)
	}
	if r.Header.Get("Metadata") != "true" {
		return nil, errors.New("no Metadata header")
	}
	a.queries = append(a.queries, r.URL.Query())
	w := httptest.NewRecorder()
	a.imds.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestManagedIdentity(t *testing.T) {
	const user = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/me"
	for name, tc := range map[string]struct {
		config map[string]any
		query  string // parameter that names the identity, "" for none
		value  string
		source string
	}{
		"system":              {map[string]any{"useManagedIdentityExtension": true}, "", "", "system-assigned"},
		"system, by msi":      {map[string]any{"aadClientId": "msi", "aadClientSecret": "msi"}, "", "", "system-assigned"},
		"user, by client":     {map[string]any{"useManagedIdentityExtension": true, "userAssignedIdentityID": "1234"}, "client_id", "1234", "user-assigned managed identity 1234"},
		"user, by ARM id":     {map[string]any{"aadClientId": "MSI", "userAssignedIdentityID": user}, "msi_res_id", user, "user-assigned managed identity " + user},
		"identity goes first": {map[string]any{"useManagedIdentityExtension": true, "useFederatedWorkloadIdentityExtension": true}, "", "", "system-assigned"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &azsim.Server{}
			defer s.Close()
			imds := &asIMDS{next: s.Transport(), imds: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tok, err := s.Credential("").GetToken(r.Context(), policy.TokenRequestOptions{})
				if err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(map[string]string{"access_token": tok.Token, "expires_in": "3600", "expires_on": "4102444800", "resource": r.URL.Query().Get("resource"), "token_type": "Bearer"})
			})}
			dir := t.TempDir()
			write(t, filepath.Join(dir, "azure.json"), object(t, azureJSON(tc.config)))
			stack := stackFile(azsim.InProcess)
			// The SDK keeps managed identities' tokens by audience, for the
			// whole process.
			stack["tokenAudience"] = "https://" + strings.ReplaceAll(name, " ", "-") + ".invalid/"
			write(t, filepath.Join(dir, "azurestackcloud.json"), object(t, stack))
			cr := load(t, credential.Config{File: filepath.Join(dir, "azure.json"), Transport: imds})
			if !strings.Contains(cr.Source, tc.source) {
				t.Errorf("source %q", cr.Source)
			}
			if err := works(t, cr); err != nil {
				t.Fatal(err)
			}
			if len(imds.queries) != 1 {
				t.Fatalf("%d questions to the metadata service", len(imds.queries))
			}
			q := imds.queries[0]
			for _, p := range []string{"client_id", "msi_res_id", "mi_res_id", "object_id"} {
				want := ""
				if p == tc.query {
					want = tc.value
				}
				if q.Get(p) != want {
					t.Errorf("%s=%q, want %q", p, q.Get(p), want)
				}
			}
		})
	}
}

func jwt(t *testing.T, subject string) string {
	t.Helper()
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"none"}`)) + "." + enc([]byte(object(t, map[string]any{"sub": subject, "exp": time.Now().Add(time.Hour).Unix()}))) + "." + enc([]byte("signature"))
}

func TestWorkloadIdentity(t *testing.T) {
	const id = "bbbbbbbb-0000-4000-8000-000000000001"
	base, ca := sim(t, azsim.Principal{Name: "pod", ClientID: id, Subject: "system:serviceaccount:kube-system:ortet", Roles: []azsim.Grant{{Role: "Reader"}}})
	dir := t.TempDir()
	token, stack := filepath.Join(dir, "token"), filepath.Join(dir, "stack.json")
	write(t, stack, object(t, stackFile(base)))

	t.Run("environment", func(t *testing.T) {
		write(t, token, jwt(t, "system:serviceaccount:kube-system:ortet"))
		cr := load(t, credential.Config{CAFile: ca, Getenv: env(map[string]string{"AZURE_FEDERATED_TOKEN_FILE": token, "AZURE_CLIENT_ID": id, "AZURE_TENANT_ID": "adfs",
			"AZURE_ENVIRONMENT_FILEPATH": stack, "AZURE_SUBSCRIPTION_ID": "sub", "AZURE_RESOURCE_GROUP": "rg"})})
		if cr.Source != "workload identity "+id || cr.Subscription != "sub" || cr.ResourceGroup != "rg" {
			t.Errorf("%+v", cr)
		}
		if err := works(t, cr); err != nil {
			t.Error(err)
		}
	})
	t.Run("azure.json", func(t *testing.T) {
		write(t, token, jwt(t, "system:serviceaccount:kube-system:ortet"))
		file := filepath.Join(dir, "azure.json")
		write(t, file, object(t, azureJSON(map[string]any{"useFederatedWorkloadIdentityExtension": true, "aadFederatedTokenFile": token, "aadClientId": id, "aadClientSecret": nil})))
		if err := works(t, load(t, credential.Config{File: file, CAFile: ca, EnvironmentFile: stack})); err != nil {
			t.Error(err)
		}
	})
	t.Run("token that is gone", func(t *testing.T) {
		write(t, token, jwt(t, "system:serviceaccount:kube-system:ortet"))
		cr := load(t, credential.Config{CAFile: ca, Getenv: env(map[string]string{"AZURE_FEDERATED_TOKEN_FILE": token, "AZURE_CLIENT_ID": id, "AZURE_TENANT_ID": "adfs", "AZURE_ENVIRONMENT_FILEPATH": stack})})
		if err := os.Remove(token); err != nil {
			t.Fatal(err)
		}
		if err := works(t, cr); !fleet.Is(err, fleet.KindUnauthenticated) {
			t.Errorf("%v", err)
		}
	})
	t.Run("somebody else's token", func(t *testing.T) {
		write(t, token, jwt(t, "system:serviceaccount:default:other"))
		cr := load(t, credential.Config{CAFile: ca, Getenv: env(map[string]string{"AZURE_FEDERATED_TOKEN_FILE": token, "AZURE_CLIENT_ID": id, "AZURE_TENANT_ID": "adfs", "AZURE_ENVIRONMENT_FILEPATH": stack})})
		if err := works(t, cr); !fleet.Is(err, fleet.KindUnauthenticated) {
			t.Errorf("%v", err)
		}
	})
}

// A log-in service that is down is worth another try; wrong credentials are not.
func TestLogInServiceIsDown(t *testing.T) {
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	gone.Close()
	broken := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer broken.Close()
	for name, base := range map[string]string{"refused": gone.URL, "unavailable": broken.URL} {
		stack := filepath.Join(t.TempDir(), "stack.json")
		write(t, stack, object(t, stackFile(base)))
		cr := load(t, credential.Config{Transport: broken.Client(), EnvironmentFile: stack, Getenv: env(map[string]string{"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "adfs", "AZURE_CLIENT_SECRET": "s3cret"})})
		if err := works(t, cr); !fleet.Is(err, fleet.KindTransient) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	base, ca := sim(t)
	stack := filepath.Join(t.TempDir(), "stack.json")
	write(t, stack, object(t, stackFile(base)))
	vars := map[string]string{"AZURE_CLIENT_ID": azsim.DefaultClientID, "AZURE_TENANT_ID": "adfs", "AZURE_CLIENT_SECRET": azsim.DefaultClientSecret, "AZURE_ENVIRONMENT": "AzureStackCloud"}
	cr := load(t, credential.Config{CAFile: ca, EnvironmentFile: stack, Getenv: env(vars)})
	if err := works(t, cr); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(cr.Source, "environment, service principal ") {
		t.Errorf("source %q", cr.Source)
	}

	// A public cloud is not asked here; only where it would be asked counts.
	for name, want := range map[string]cloud.Configuration{"": cloud.AzurePublic, "AzurePublicCloud": cloud.AzurePublic, "AzureUSGovernmentCloud": cloud.AzureGovernment, "azurechinacloud": cloud.AzureChina} {
		cr := load(t, credential.Config{Getenv: env(map[string]string{"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "s", "AZURE_ENVIRONMENT": name})})
		if cr.Cloud.Services[cloud.ResourceManager].Endpoint != want.Services[cloud.ResourceManager].Endpoint || cr.Cloud.ActiveDirectoryAuthorityHost != want.ActiveDirectoryAuthorityHost {
			t.Errorf("%q: %+v", name, cr.Cloud)
		}
	}
}

func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cert.pem")
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))+string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	config := filepath.Join(dir, "azure.json")
	write(t, config, object(t, azureJSON(map[string]any{"cloud": "AzurePublicCloud", "tenantId": "t", "aadClientSecret": nil, "aadClientCertPath": file})))
	cr := load(t, credential.Config{File: config})
	if !strings.Contains(cr.Source, "by certificate") {
		t.Errorf("source %q", cr.Source)
	}
	write(t, file, "nothing")
	if _, err := credential.Load(t.Context(), credential.Config{File: config}); err == nil || !strings.Contains(err.Error(), "cert.pem") {
		t.Errorf("%v", err)
	}
}

func TestCLI(t *testing.T) {
	base, ca := sim(t)
	run := func(_ context.Context, name string, args ...string) ([]byte, error) {
		switch name + " " + strings.Join(args, " ") {
		case "az account show -o json":
			return []byte(`{"id":"sub","tenantId":"adfs","environmentName":"sim","user":{"name":"me","type":"servicePrincipal"}}`), nil
		case "az cloud show -o json":
			return []byte(`{"name":"sim","isActive":true,"endpoints":{"resourceManager":"` + base + `","activeDirectory":"` + base + `/adfs","activeDirectoryResourceId":"` + base + `/","batchResourceId":null}}`), nil
		}
		return nil, errors.New("unexpected")
	}
	cr := load(t, credential.Config{CAFile: ca, Run: run, DefaultFile: filepath.Join(t.TempDir(), "azure.json")})
	if cr.Subscription != "sub" || cr.Source != "Azure CLI, me" || cr.Cloud.Services[cloud.ResourceManager].Endpoint != base {
		t.Errorf("%+v", cr)
	}
}

func TestNothingFound(t *testing.T) {
	none := func(context.Context, string, ...string) ([]byte, error) {
		return nil, &exec.Error{Name: "az", Err: exec.ErrNotFound}
	}
	_, err := credential.Load(t.Context(), credential.Config{Run: none, DefaultFile: "/nonexistent/azure.json",
		Getenv: env(map[string]string{"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t"})})
	if !fleet.Is(err, fleet.KindUnauthenticated) {
		t.Fatal(err)
	}
	for _, want := range []string{"1. workload identity", "AZURE_FEDERATED_TOKEN_FILE not set", "2. environment", "neither AZURE_CLIENT_SECRET nor AZURE_CLIENT_CERTIFICATE_PATH",
		"3. azure.json (/nonexistent/azure.json)", "no such file", "4. Azure CLI", "no program az", "az login"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	out := func(context.Context, string, ...string) ([]byte, error) {
		return nil, fmt.Errorf("exit status 1: %s", "Please run 'az login' to setup account.")
	}
	if _, err := credential.Load(t.Context(), credential.Config{Run: out, DefaultFile: filepath.Join(t.TempDir(), "azure.json")}); err == nil || !strings.Contains(err.Error(), "Please run 'az login'") {
		t.Errorf("%v", err)
	}
}

// What is set up but wrong must not be passed over for somebody else's rights.
func TestWrongIsNotSkipped(t *testing.T) {
	asked := false
	run := func(context.Context, string, ...string) ([]byte, error) { asked = true; return nil, errors.New("no") }
	file := filepath.Join(t.TempDir(), "azure.json")
	write(t, file, `{"aadClientId":`)
	if _, err := credential.Load(t.Context(), credential.Config{Run: run, DefaultFile: file}); err == nil || asked {
		t.Errorf("asked the CLI: %v, error %v", asked, err)
	}
}

func TestBadAzureJSON(t *testing.T) {
	for name, tc := range map[string]struct{ text, says string }{
		"empty":          {"", "empty"},
		"blank":          {" \n", "empty"},
		"no object":      {`["a"]`, "no JSON object"},
		"cut":            {`{"cloud":"x"`, "no JSON"},
		"more":           {`{"aadClientSecret":"x"} {`, "more after"},
		"wrong type":     {`{"aadClientSecret": 12345678}`, `"aadClientSecret" must be a string, but is a number`},
		"wrong bool":     {`{"useManagedIdentityExtension": "s3cret"}`, `"useManagedIdentityExtension" must be true or false, without quotes, but is a string`},
		"no way":         {`{"tenantId":"t"}`, "no way to log in"},
		"half a service": {`{"aadClientSecret":"s3cret"}`, "aadClientId and tenantId"},
		"cloud":          {`{"cloud":"MyCloud"}`, `cloud "MyCloud" is unknown`},
		"no endpoints":   {`{"cloud":"AzureStackCloud"}`, "endpoint file"},
		"no token":       {`{"useFederatedWorkloadIdentityExtension":true,"aadClientId":"c","tenantId":"t"}`, "aadFederatedTokenFile"},
		"token is gone":  {`{"useFederatedWorkloadIdentityExtension":true,"aadClientId":"c","tenantId":"t","aadFederatedTokenFile":"/nonexistent/t"}`, "/nonexistent/t"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "azure.json")
			write(t, file, tc.text)
			_, err := credential.Load(t.Context(), credential.Config{File: file})
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), file) {
				t.Errorf("%v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "12345678")) {
				t.Errorf("shows a secret: %v", err)
			}
		})
	}
	if _, err := credential.Load(t.Context(), credential.Config{File: "/nonexistent/azure.json"}); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	big := filepath.Join(t.TempDir(), "azure.json")
	write(t, big, strings.Repeat(" ", 2<<20))
	if _, err := credential.Load(t.Context(), credential.Config{File: big}); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("%v", err)
	}
	if _, err := credential.Load(t.Context(), credential.Config{File: big, CAFile: big}); err == nil {
		t.Error("a file without certificates is accepted")
	}
}
