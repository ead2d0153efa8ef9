package credential

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"github.com/ortet/ortet/internal/fleet"
)

type answering func(*http.Request) (*http.Response, error)

func (f answering) Do(r *http.Request) (*http.Response, error) { return f(r) }

// FuzzLoad reads any azure.json beside any endpoint file, with any answer of a
// cloud that is asked to describe itself, and any words of the Azure CLI. What
// comes is an error of a kind that says what to do, which shows no secret, or
// credentials for https endpoints; and nothing but the endpoint that is named is
// asked, without credentials.
func FuzzLoad(f *testing.F) {
	const principal = `"tenantId":"t","aadClientId":"c","aadClientSecret":"s3cret-value","subscriptionId":"s"`
	const stack = `{"resourceManagerEndpoint":"https://rm.invalid/","activeDirectoryEndpoint":"https://ad.invalid/adfs","tokenAudience":"https://rm.invalid/x"}`
	const metadata = `{"authentication":{"loginEndpoint":"https://ad.invalid/","audiences":["https://rm.invalid/x"]}}`
	f.Add(`{`+principal+`}`, "", "")
	f.Add(`{"cloud":"AzureStackCloud",`+principal+`}`, stack, "")
	f.Add(`{"cloud":"AzureStackCloud","identitySystem":"adfs","resourceManagerEndpoint":"https://rm.invalid",`+principal+`}`, "", metadata)
	f.Add(`{"cloud":"AzureStackCloud","resourceManagerEndpoint":"https://user:s3cret-value@rm.invalid",`+principal+`}`, "", `{"authentication":{"loginEndpoint":"http://ad.invalid"}}`)
	f.Add(`{"cloud":"AzureStackCloud","resourceManagerEndpoint":"https:///x",`+principal+`}`, "", `{"authentication":{"audiences":[null]}}`)
	f.Add(`{"useManagedIdentityExtension":true,"userAssignedIdentityID":"x"}`, "", "")
	f.Add(`{"useFederatedWorkloadIdentityExtension":true,"aadFederatedTokenFile":"/nonexistent","aadClientId":"c","tenantId":"../.."}`, "", "")
	f.Add(`{"aadClientId":"c","tenantId":"t","aadClientCertPath":"/nonexistent","aadClientCertPassword":"s3cret-value"}`, "", "")
	f.Add(`{"cloud":"AzureGermanCloud"}`, `[]`, `<html>`)
	f.Add(``, `{"endpoints":{"resourceManager":"https://rm.invalid","activeDirectory":"https://ad.invalid"}}`, `{"id":"s","tenantId":"t","user":{"name":"n"}}`)
	f.Fuzz(func(t *testing.T, file, endpoint, answer string) {
		dir := t.TempDir()
		for name, text := range map[string]string{"azure.json": file, "azurestackcloud.json": endpoint} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		config := Config{
			DefaultFile: filepath.Join(dir, "azure.json"),
			Transport: answering(func(r *http.Request) (*http.Response, error) {
				if r.URL.Scheme != "https" || r.Method != http.MethodGet || r.Header.Get("Authorization") != "" && r.URL.User == nil {
					t.Errorf("asked %s %s", r.Method, r.URL)
				}
				return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
			}),
			Run: func(_ context.Context, name string, args ...string) ([]byte, error) {
				if name != "az" {
					t.Errorf("ran %s", name)
				}
				if answer == "" {
					return nil, exec.ErrNotFound
				}
				if len(args) > 0 && args[0] == "cloud" {
					return []byte(endpoint), nil
				}
				return []byte(answer), nil
			},
		}
		got, err := Load(t.Context(), config)
		if err != nil {
			var e *fleet.Error
			if !errors.As(err, &e) || e.Op == "" || e.Kind == fleet.KindUnknown {
				t.Errorf("%T of kind %q: %v", err, fleet.KindOf(err), err)
			}
			if strings.Contains(file, `"s3cret-value"`) && strings.Contains(err.Error(), "s3cret-value") {
				t.Errorf("shows a secret: %v", err)
			}
			if len(err.Error()) > 16<<10 {
				t.Errorf("%d bytes of error", len(err.Error()))
			}
			return
		}
		if got.TokenCredential == nil || got.Source == "" {
			t.Errorf("%+v", got)
		}
		for _, s := range []string{got.Cloud.Services[cloud.ResourceManager].Endpoint, got.Cloud.ActiveDirectoryAuthorityHost} {
			if u, err := url.Parse(s); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
				t.Errorf("endpoint %q (%v)", s, err)
			}
		}
	})
}
