package live_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/test/live"
)

// planted is what an answer of a real subscription may have, with what must not be published.
var planted = []struct{ json, secret string }{
	{`"vmId": "8d2f6a1e-1111-4c3b-9d4e-5f60718293a4"`, "8d2f6a1e-1111-4c3b-9d4e-5f60718293a4"},
	{`"principalId": "3B1C5D7E-2222-4F60-8192-A3B4C5D6E7F8"`, "3b1c5d7e-2222-4f60-8192-a3b4c5d6e7f8"},
	{`"systemData": {"createdBy": "erika.mustermann@corp.example", "lastModifiedBy": "Max Mustermann"}`, "mustermann"},
	{`"message": "The client 'Otto Normal' with object id 'x' may not do this"`, "otto"},
	{`"publicIP": "20.61.12.7"`, "20.61.12.7"},
	{`"privateIP": "10.1.2.3"`, "10.1.2.3"},
	{`"ip6": "2603:1020:206:9::5f"`, "2603:1020"},
	{`"mac": "60-45-BD-9A-12-34"`, "60-45-bd"},
	{`"dns": "a1b2c3d4e5f6g7h8i9j0k1l2m3.ax.internal.cloudapp.net"`, "a1b2c3d4e5f6g7h8i9j0k1l2m3"},
	{`"serial": "https://corpdiag7.blob.core.windows.net/boot/log?sv=1&sig=c2lnbmF0dXJlc2ln"`, "corpdiag7"},
	{`"sas": "https://md-x.z40.blob.storage.azure.net/a?sv=1&sig=b3RoZXJzaWc0"`, "b3rozxjzawc0"},
	{`"peer": {"id": "/subscriptions/5ca1ab1e-0000-4000-8000-000000000002/resourceGroups/corp-prod-rg/providers/Microsoft.Compute/virtualMachines/payroll-db-1"}`, "payroll-db-1"},
	{`"scope": "/providers/Microsoft.Management/managementGroups/CorpRoot"`, "corproot"},
	{`"error": {"additionalInfo": [{"info": {"policyAssignmentDisplayName": "Rules of Contoso"}}]}`, "contoso"},
	{`"tags": {"costCenter": "Fabrikam 4711"}`, "fabrikam"},
	{`"keyData": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIM mine"`, "aaaac3nzac1lzdi1nte5aaaaim"},
	{`"connection": "DefaultEndpointsProtocol=https;AccountName=corpacct;AccountKey=` + accountKey + `;EndpointSuffix=core.windows.net"`, strings.ToLower(accountKey)},
	{`"text": "owner JaneDoe of ` + azsim.DefaultTenant + `"`, "janedoe"},
}

const accountKey = "bm90IGEga2V5IGJ1dCBvZiBpdHMgbGVuZ3RoLCBtYWRlIHVwIGZvciB0ZXN0cywgYWFhYWFhYWFhYWFhYWFhYQ=="

// What says whose subscription it was is in neither file, in findings as in answers.
func TestPublishedFilesNameNobody(t *testing.T) {
	on(t, func(b *bench) {
		b.env["LIVE_CHECK"] = "Conditions"
		message := `AuthorizationFailed: The client 'Otto Normal' with object id '8d2f6a1e-1111-4c3b-9d4e-5f60718293a4' at 20.61.12.7 in /subscriptions/` +
			azsim.DefaultSubscription + `/resourceGroups/corp-prod-rg/providers/Microsoft.Compute/virtualMachines/payroll-db-1 and /resourceGroups/corp-prod-rg/providers/Microsoft.Compute/virtualMachines/ledger-app-7, once oldledger-app-70, for janedoe, erika.mustermann@corp.example; AccountKey=` + accountKey
		if err := b.azure.AddFault(azsim.Fault{Method: "PATCH", Path: "/conditionsflex$", Effect: azsim.EffectError, Status: 403, Code: "AuthorizationFailed", Message: message}); err != nil {
			b.Fatal(err)
		}
		seen := 0
		b.after = func(r *http.Request, resp *http.Response) {
			if r.Method == http.MethodGet && isScaleSet(r, "conditionsunif") {
				seen++
				plant(b, resp)
			}
		}
		b.run(b.Context(), live.ExitDiffers, "elsewhere is still in them, within other words") // in oldledger-app-70
		b.left()
		files := strings.ToLower(b.file("contract.md") + b.file("contract.json"))
		if seen == 0 || !strings.Contains(files, "planted") || !strings.Contains(files, "authorizationfailed") {
			b.Fatalf("nothing was planted:\n%s", &b.out)
		}
		for _, p := range planted {
			if strings.Contains(files, p.secret) {
				b.Errorf("published: %s", p.json)
			}
		}
		for _, word := range []string{azsim.DefaultSubscription, azsim.DefaultTenant, "janedoe", "jane.doe", "otto", "corp-prod-rg", "aa1-"} {
			if strings.Contains(files, word) {
				b.Errorf("published: %s", word)
			}
		}
		t.Log(b.file("contract.md"))
	})
}

func plant(b *bench, resp *http.Response) {
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	var body map[string]any
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, &body); err != nil {
			b.Fatal(err)
		}
		var all []any
		for _, p := range planted {
			var v any
			if err := json.Unmarshal([]byte("{"+p.json+"}"), &v); err != nil {
				b.Fatalf("%s: %v", p.json, err)
			}
			all = append(all, v)
		}
		body["planted"] = all
		if text, err = json.Marshal(body); err != nil {
			b.Fatal(err)
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
}
