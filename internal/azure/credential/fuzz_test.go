package credential

import (
	"strings"
	"testing"
)

func FuzzAzureJSON(f *testing.F) {
	f.Add([]byte(`{"cloud":"AzureStackCloud","aadClientId":"msi","useManagedIdentityExtension":true}`))
	f.Add([]byte("\xef\xbb\xbf{}"))
	f.Add([]byte(`{"aadClientSecret":"s3cret-value","tenantId":[]}`))
	f.Add([]byte(`{"AADCLIENTSECRET":"s3cret-value"} x`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parse(data)
		if err != nil && a != (azureJSON{}) {
			t.Error("an error, and something beside it")
		}
		if err != nil && strings.Contains(err.Error(), "s3cret-value") {
			t.Errorf("shows a secret: %v", err)
		}
	})
}

func FuzzEndpointFile(f *testing.F) {
	f.Add([]byte(`{"resourceManagerEndpoint":"https://a/","activeDirectoryEndpoint":"https://b/adfs"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parseEndpoints(data)
		if err != nil {
			return
		}
		for _, s := range e.where.Services {
			if !strings.HasPrefix(strings.ToLower(s.Endpoint), "https://") {
				t.Errorf("endpoint %q", s.Endpoint)
			}
		}
	})
}
