package live_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/test/live"
)

// identifying is what must not be published, in a text with it as Azure or a command words it.
var identifying = []struct{ text, secret string }{
	{"subscription " + azsim.DefaultSubscription, azsim.DefaultSubscription},
	{"tenant " + azsim.DefaultTenant, azsim.DefaultTenant},
	{"client id 3B1C5D7E-2222-4F60-8192-A3B4C5D6E7F8", "3b1c5d7e-2222-4f60-8192-a3b4c5d6e7f8"},
	{"logged in as jane.doe@corp.example", "jane.doe"},
	{"asked erika.mustermann@corp.example", "mustermann"},
	{"by owner janedoe today", "janedoe"},
	{"the client 'Otto Normal' may not", "otto normal"},
	{`{"createdBy":"Max Meier"}`, "max meier"},
	{"from 20.61.12.7 to", "20.61.12.7"},
	{"from 2603:1020:206:9::5f to", "2603:1020:206:9::5f"},
	{"cannot dial corpk3s.westeurope.cloudapp.azure.com:6443", "corpk3s"},
	{"cannot pull from corpregistry.azurecr.io/app", "corpregistry"},
	{"no such host corpdiag7.blob.core.windows.net", "corpdiag7"},
	{"vault corpvault.vault.azure.net", "corpvault"},
	{"see https://corpdiag7.blob.core.windows.net/boot/log?sv=2022&sig=c2lnbmF0dXJlc2lnbmF0dXJl%3D&se=2027", "c2lnbmf0dxjl"},
	{"Authorization: Bearer " + bearer, strings.ToLower(bearer[:40])},
	{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPlantedPlantedPlantedPlantedPlantedPlan jane@laptop7", "aaaac3nzac1lzdi1nte5aaaaiplanted"},
	{"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQPlanted jane@laptop7", "laptop7"},
	{"client-key-data: LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCk1IY0NBUUVFSU", "ls0tls1crudjtibfqybquklwqvrf"},
	{"client-certificate-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJrVENDQVRlZ0F3SUJBZ0lKQU1", "ls0tls1crudjtibdrvjusuzjq0fu"},
	{"AccountKey=" + accountKey, strings.ToLower(accountKey)},
	{"in /subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/corp-prod-rg/providers/Microsoft.Compute/virtualMachines/payroll-db-1 is", "payroll-db-1"},
	{"the resource group 'corp-prod-rg' is locked", "corp-prod-rg"},
	{"Resource 'x' was disallowed by policy. Reasons: 'Contoso allows no addresses'. See error details", "contoso"},
	{"cannot read /home/jdoe7/.kube/config", "jdoe7"},
	{"cannot read /Users/jdoe7/.kube/config", "jdoe7"},
	{"on host laptop-of-jane7 it", "laptop-of-jane7"},
}

const bearer = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJwbGFudGVkIiwibmFtZSI6IkphbmUgRG9lIn0.c2lnbmF0dXJlc2lnbmF0dXJlc2lnbmF0dXJl"

var encodings = map[string]func(string) string{
	"as it is":     func(s string) string { return s },
	"upper case":   strings.ToUpper,
	"URL-escaped":  url.QueryEscape,
	"path-escaped": url.PathEscape,
	"base64":       func(s string) string { return base64.StdEncoding.EncodeToString([]byte("text of " + s + " and so on")) },
	"base64 URL":   func(s string) string { return "x=" + base64.RawURLEncoding.EncodeToString([]byte(s)) + "," },
	"JSON":         func(s string) string { return `{"error":` + strconv.Quote(s) + `}` },
	"JSON twice":   func(s string) string { return strconv.Quote(`{"error":` + strconv.Quote(s) + `}`) },
	"JSON escapes": func(s string) string {
		return strings.NewReplacer("@", `\u0040`, "&", `\u0026`, "'", `\u0027`, ".", `\u002e`, ":", `\u003a`, "/", `\/`).Replace(s)
	},
}

// What names somebody is in neither file, in whatever encoding an answer has it. A policy's
// tags are not there either where the run sends them back, and cost nobody the report where
// they are words of every answer.
func TestPublishedFilesNameNobodyEncoded(t *testing.T) {
	on(t, func(b *bench) {
		b.env["LIVE_CHECK"] = "Conditions"
		b.env["HOME"], b.env["USER"], b.env["HOSTNAME"] = "/home/jdoe7", "jdoe7", "laptop-of-jane7"
		var texts, labels, secrets []string
		for _, p := range identifying {
			for name, encode := range encodings {
				if name != "upper case" || !strings.Contains(p.text, "LS0t") { // no base64 any more
					texts, labels, secrets = append(texts, encode(p.text)), append(labels, name), append(secrets, p.secret)
				}
			}
		}
		if err := b.azure.AddFault(azsim.Fault{Method: "PATCH", Path: "/conditionsflex$", Effect: azsim.EffectError, Status: 403, Code: "AuthorizationFailed",
			Message: "The client 'Otto Normal' at /home/jdoe7 of jdoe7%40corp.example, resource group 'corp-prod-rg', " + base64.StdEncoding.EncodeToString([]byte("cost center Fab7"))}); err != nil {
			b.Fatal(err)
		}
		others := map[string]any{"costCenter": "Fab7", "description": "westeurope", "environment": "production", "department": "q7x"}
		b.after = func(r *http.Request, resp *http.Response) {
			if r.Method != http.MethodGet || !isScaleSet(r, "conditionsunif") || resp.StatusCode != http.StatusOK {
				return
			}
			var body map[string]any
			text, err := io.ReadAll(resp.Body)
			if err == nil {
				err = json.Unmarshal(text, &body)
			}
			if err != nil {
				b.Fatal(err)
			}
			body["planted"], body["tags"] = texts, others
			body["delta"] = map[string]any{"path": "tags.costCenter", "before": "Fab7"}
			if text, err = json.Marshal(body); err != nil {
				b.Fatal(err)
			}
			resp.Header.Set("X-Ms-Ratelimit-Remaining-Resource", "Authorization: Bearer "+bearer)
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		}
		sentBack := false
		b.before = func(r *http.Request) error {
			if r.Method != http.MethodPatch || !isScaleSet(r, "conditionsunif") {
				return nil
			}
			var body map[string]any
			text, err := io.ReadAll(r.Body)
			if err == nil {
				err = json.Unmarshal(text, &body)
			}
			if err != nil {
				b.Fatal(err)
			}
			sentBack, body["tags"] = true, others
			if text, err = json.Marshal(body); err != nil {
				b.Fatal(err)
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			return nil
		}
		b.run(b.Context(), live.ExitDiffers)
		recording := b.file("contract.json")
		var rec struct {
			Interactions []struct {
				Headers  map[string]string
				Response any
			}
		}
		if err := json.Unmarshal([]byte(recording), &rec); err != nil {
			b.Fatal(err)
		}
		found := 0
		for _, i := range rec.Interactions {
			body, _ := i.Response.(map[string]any)
			planted, _ := body["planted"].([]any)
			for n, v := range planted {
				found++
				if got := strings.ToLower(decodedFully(v.(string)) + v.(string)); strings.Contains(got, secrets[n]) {
					b.Errorf("published: %s as %s: %s", secrets[n], labels[n], got)
				}
			}
		}
		if found == 0 || !sentBack || !strings.Contains(recording, `"location": "westeurope"`) {
			b.Errorf("%d texts planted, tags sent back: %v", found, sentBack)
		}
		files := strings.ToLower(recording + decodedFully(b.file("contract.md")))
		for _, secret := range append(secrets, "costcenter", "fab7", `"q7x"`, "otto", "jdoe7") {
			if strings.Contains(files, secret) {
				at := strings.Index(files, secret)
				b.Errorf("published: %s: %.400q", secret, (recording + decodedFully(b.file("contract.md")))[max(0, at-200):])
			}
		}
	})
}

// decodedFully takes encodings off.
func decodedFully(s string) string {
	for range 4 {
		before := s
		if u, err := url.QueryUnescape(s); err == nil {
			s = u
		}
		s = strings.NewReplacer(`\u0040`, "@", `\u0026`, "&", `\u0027`, "'", `\u002e`, ".", `\u003a`, ":", `\/`, "/", `\"`, `"`).Replace(s)
		s = b64.ReplaceAllStringFunc(s, func(w string) string {
			if d, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(w), "=")); err == nil && printable(d) {
				return string(d)
			}
			return w
		})
		if s == before {
			break
		}
	}
	return s
}

var b64 = regexp.MustCompile(`[A-Za-z0-9+/_-]{16,}={0,2}`)

func printable(d []byte) bool {
	for _, c := range d {
		if c < ' ' && c != '\n' || c > '~' {
			return false
		}
	}
	return len(d) > 0
}
