package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/smallstep/pkcs7"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/metadata"
	"github.com/ortet/ortet/test/syncbuffer"
)

// start runs azsim serve until the test ends, and waits until it is ready.
func start(t *testing.T, spec string, args ...string) endpoint {
	t.Helper()
	dir := t.TempDir()
	if spec != "" {
		path := filepath.Join(dir, "spec.yaml")
		if err := os.WriteFile(path, []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--spec", path)
	}
	dir = filepath.Join(dir, "azsim")
	ctx, cancel := context.WithCancel(context.Background())
	var out syncbuffer.Buffer
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append([]string{"serve", "--dir", dir}, args...), &out, &out) }()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitDone {
			t.Errorf("exit %d:\n%s", code, out.String())
		}
		if _, err := os.Stat(filepath.Join(dir, endpointFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left behind: %v", endpointFile, err)
		}
	})
	deadline := time.After(5 * time.Minute)
	for {
		data, err := os.ReadFile(filepath.Join(dir, endpointFile))
		if err == nil {
			var e endpoint
			if err := json.Unmarshal(data, &e); err != nil {
				t.Fatal(err)
			}
			return e
		}
		select {
		case code := <-ended:
			ended <- code
			t.Fatalf("exit %d:\n%s", code, out.String())
		case <-deadline:
			t.Fatalf("not ready:\n%s", out.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// trusting is a client that trusts the server's authority alone.
func (e endpoint) trusting(t *testing.T) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(e.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (e endpoint) options(t *testing.T) policy.ClientOptions {
	o := policy.ClientOptions{Cloud: azsim.Cloud(e.ResourceManager), Transport: e.trusting(t)}
	o.Cloud.ActiveDirectoryAuthorityHost = e.ActiveDirectory
	return o
}

func (e endpoint) secret(t *testing.T, tenant, secret string) azcore.TokenCredential {
	t.Helper()
	c, err := azidentity.NewClientSecretCredential(tenant, e.ClientID, secret, &azidentity.ClientSecretCredentialOptions{
		ClientOptions: e.options(t), DisableInstanceDiscovery: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func makeDisk(t *testing.T, e endpoint, cred azcore.TokenCredential) error {
	t.Helper()
	c, err := armcompute.NewDisksClient(e.Subscription, cred, &arm.ClientOptions{ClientOptions: e.options(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	empty, size := armcompute.DiskCreateOptionEmpty, int32(4)
	p, err := c.BeginCreateOrUpdate(ctx, e.ResourceGroup, "d", armcompute.Disk{
		Location: &e.Location, Properties: &armcompute.DiskProperties{DiskSizeGB: &size, CreationData: &armcompute.CreationData{CreateOption: &empty}},
	}, nil)
	if err != nil {
		return err
	}
	_, err = p.PollUntilDone(ctx, nil)
	return err
}

func TestSDKOverTLS(t *testing.T) {
	e := start(t, "", "--speed", "1000")
	for name, tenant := range map[string]string{"AD FS": e.Tenant, "tenant id": azsim.DefaultTenant} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			if err := makeDisk(t, e, e.secret(t, tenant, e.ClientSecret)); err != nil {
				t.Fatal(err)
			}
			t.Logf("log-in and a disk took %v", time.Since(began))
		})
	}
	if err := makeDisk(t, e, e.secret(t, e.Tenant, "wrong")); err == nil || !strings.Contains(err.Error(), "AADSTS7000215") {
		t.Errorf("a wrong secret: %v", err)
	}
}

func TestWorkloadIdentity(t *testing.T) {
	e := start(t, `principals: [{clientId: 00000000-0000-4000-8000-000000000009, subject: "system:serviceaccount:ns:sa", roles: [{role: Contributor}]}]`, "--speed", "1000")
	assert := func(subject string) azcore.TokenCredential {
		enc := base64.RawURLEncoding.EncodeToString
		token := enc([]byte(`{"alg":"RS256"}`)) + "." + enc(fmt.Appendf(nil, `{"sub":%q,"exp":%d}`, subject, time.Now().Add(time.Hour).Unix())) + "." + enc([]byte("signature"))
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: e.options(t), DisableInstanceDiscovery: true, ClientID: e.ClientID, TenantID: azsim.DefaultTenant, TokenFilePath: path,
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := makeDisk(t, e, assert("system:serviceaccount:ns:sa")); err != nil {
		t.Fatal(err)
	}
	if err := makeDisk(t, e, assert("system:serviceaccount:ns:other")); err == nil || !strings.Contains(err.Error(), "AADSTS700213") {
		t.Errorf("another subject: %v", err)
	}
}

func TestFilesOfTheServer(t *testing.T) {
	e := start(t, "")
	dir := filepath.Dir(e.CAFile)
	for _, name := range []string{endpointFile, caFile, "azure.json", "azurestackcloud.json"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	data, err := os.ReadFile(e.AzureConfig)
	if err != nil {
		t.Fatal(err)
	}
	var config struct{ Cloud, TenantID, AADClientID, AADClientSecret string }
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	if config.Cloud != "AzureStackCloud" || config.TenantID != e.Tenant || config.AADClientID != e.ClientID || config.AADClientSecret != e.ClientSecret {
		t.Errorf("azure.json: %s", data)
	}
	root, err := os.ReadFile(e.AttestationCAFile)
	if err != nil {
		t.Fatal(err)
	}
	issuer := fetchIssuer(t, e)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	if _, err := issuer.Verify(x509.VerifyOptions{Roots: pool}); err != nil || !issuer.IsCA {
		t.Errorf("the issuer of attested documents, %s: %v", issuer.Subject, err)
	}
	// Without the authority's certificate nobody gets in.
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, e.ResourceManager+"/metadata/endpoints", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close()
		t.Error("a client that does not know the authority gets an answer")
	}
}

// fetchIssuer fetches the issuer of attested documents from where Azure's is,
// through the server's proxy.
func fetchIssuer(t *testing.T, e endpoint) *x509.Certificate {
	t.Helper()
	proxy, err := url.Parse(e.AttestationProxy)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{Proxy: http.ProxyURL(proxy)}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, metadata.IssuerURL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	der, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("%s: %v", res.Status, err)
	}
	return c
}

func TestUsageErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("nothing: 1\nfaults: [{effect: none}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"serve"}, []string{"--dir is missing"}},
		{[]string{"serve", "--wrong"}, []string{"--wrong"}},
		{[]string{"serve", "more", "--dir", dir}, []string{"more"}},
		{[]string{"nothing"}, []string{"nothing"}},
		{[]string{"completion", "bsh"}, []string{"completion"}},
		{[]string{"serve", "--dir", dir, "--speed", "0", "--instances", "paper", "--listen", "x", "--listen-plain", "y", "--kubeconfig", dir + "/none"}, []string{"--speed", "--instances", "--listen: ", "--listen-plain: ", "--kubeconfig"}},
		{[]string{"serve", "--dir", dir, "--spec", bad}, []string{"nothing", "none"}},
		{[]string{"serve", "--dir", dir, "--log-level", "loud"}, []string{"--log-level"}},
	} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), c.args, &out, &errs); code != exitUsage {
			t.Errorf("%v: exit %d", c.args, code)
		}
		for _, w := range c.want {
			if !strings.Contains(errs.String(), w) {
				t.Errorf("%v: %q is not in %s", c.args, w, errs.String())
			}
		}
	}
}

const cliSpec = `
profile:
  version.create: {min: 100s, max: 200s}
scaleSets:
- name: pool1
  capacity: 2
  body:
    sku: {name: Standard_D2s_v5, tier: Standard}
    zones: ["1"]
    properties:
      orchestrationMode: Uniform
      upgradePolicy: {mode: Manual}
      virtualMachineProfile:
        osProfile:
          computerNamePrefix: pool1
          adminUsername: azureuser
          customData: I2Nsb3VkLWNvbmZpZwo=
          linuxConfiguration:
            disablePasswordAuthentication: true
            ssh: {publicKeys: [{path: /home/azureuser/.ssh/authorized_keys, keyData: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGiTqJ0C0u8b9v1h0v1h0v1h0v1h0v1h0v1h0v1h0v1h test"}]}
        storageProfile:
          imageReference: {publisher: Canonical, offer: ubuntu-24_04-lts, sku: server, version: latest}
          osDisk: {createOption: FromImage, diskSizeGB: 30, managedDisk: {storageAccountType: Premium_LRS}}
        networkProfile:
          networkInterfaceConfigurations:
          - name: nic
            properties:
              primary: true
              ipConfigurations:
              - name: ip
                properties: {subnet: {id: /subscriptions/5ca1ab1e-0000-4000-8000-000000000002/resourceGroups/azsim/providers/Microsoft.Network/virtualNetworks/v/subnets/s}}
`

// Another process of this computer is an instance: its document verifies with the
// files that the server names, and it hears of an event that a third one makes.
func TestInstancesForOtherProcesses(t *testing.T) {
	e := start(t, cliSpec+"attestationChain: true\n", "--speed", "1000")
	id := "/subscriptions/" + e.Subscription + "/resourceGroups/azsim/providers/Microsoft.Compute/virtualMachineScaleSets/pool1/virtualMachines/0"
	ask := func(client *http.Client, method, url string) []byte {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Metadata", "true")
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= 300 {
			t.Fatalf("%s %s: %s %s %v", method, url, res.Status, body, err)
		}
		return body
	}
	plain := &http.Client{Transport: &http.Transport{}}
	defer plain.CloseIdleConnections()
	metadata := e.InstanceMetadata + id + "/metadata"
	var answer struct{ Signature []byte }
	if err := json.Unmarshal(ask(plain, http.MethodGet, metadata+"/attested/document?api-version=2025-04-07&nonce=1234567890"), &answer); err != nil {
		t.Fatal(err)
	}
	message, err := pkcs7.Parse(answer.Signature)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.ReadFile(e.AttestationCAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	if err := message.VerifyWithChain(pool); err != nil || !strings.Contains(string(message.Content), `"nonce":"1234567890"`) {
		t.Errorf("%s: %v", message.Content, err)
	}

	made := ask(e.trusting(t), http.MethodPost, e.ResourceManager+"/azsim/events?type=Freeze&instance="+url.QueryEscape(id))
	var event struct{ EventID string }
	if err := json.Unmarshal(made, &event); err != nil || event.EventID == "" {
		t.Fatalf("%s: %v", made, err)
	}
	ask(plain, http.MethodGet, metadata+"/scheduledevents?api-version=2020-07-01")
	deadline := time.Now().Add(5 * time.Minute)
	for !strings.Contains(string(ask(plain, http.MethodGet, metadata+"/scheduledevents?api-version=2020-07-01")), event.EventID) {
		if time.Now().After(deadline) {
			t.Fatal("the event is not shown")
		}
		time.Sleep(250 * time.Millisecond) // five requests a second are the limit
	}
}
