package azsim

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/azsim/metadata"
)

// aside answers what is not ARM: discovery, log-in, and the simulator's own
// endpoints. It says whether it did.
func (c *call) aside(w http.ResponseWriter) bool {
	path := strings.Trim(c.r.URL.Path, "/")
	lower := strings.ToLower(path)
	switch {
	case lower == "metadata/endpoints":
		c.finish(w, c.encoded(ok(c.endpoints())))
	case strings.HasSuffix(lower, "/.well-known/openid-configuration"):
		authority := strings.TrimSuffix(strings.TrimSuffix(path[:len(path)-len("/.well-known/openid-configuration")], "/v2.0"), "/adfs/adfs")
		c.finish(w, c.encoded(ok(c.openid(strings.TrimSuffix(authority, "/adfs")))))
	case strings.HasSuffix(lower, "/oauth2/token"), strings.HasSuffix(lower, "/oauth2/v2.0/token"):
		c.finish(w, c.encoded(c.token()))
	case lower == "common/discovery/instance":
		c.finish(w, c.encoded(ok(map[string]any{"tenant_discovery_endpoint": c.base() + "/adfs/.well-known/openid-configuration"})))
	case strings.HasPrefix(lower, consolePath+"/"):
		c.finish(w, c.serveConsole())
	case strings.HasPrefix(c.r.URL.Path, metadata.PublicationPath):
		c.s.Publication().ServeHTTP(w, c.r)
	default:
		return false
	}
	return true
}

// endpoints is the object of the versions before 2019, from which the Azure CLI
// registers a cloud, or the array of clouds of those since, in which clients of
// the Kubernetes cloud provider look for the name in azure.json.
func (c *call) endpoints() any {
	base := c.base()
	if c.query("api-version") >= "2019-05-01" {
		return []any{c.cloud()}
	}
	return map[string]any{
		"galleryEndpoint": base + "/gallery", "graphEndpoint": base + "/graph/", "portalEndpoint": base + "/portal",
		"authentication": map[string]any{"loginEndpoint": base + "/adfs", "audiences": []string{base + "/"}},
	}
}

// cloud describes the cloud, as environment() in templates does too.
func (c *call) cloud() map[string]any {
	base := c.base()
	return map[string]any{
		"name": "AzureStackCloud", "resourceManager": base + "/", "portal": base + "/portal", "gallery": base + "/gallery", "graph": base + "/graph/",
		"authentication": map[string]any{"loginEndpoint": base + "/", "audiences": []any{base + "/"}, "tenant": "adfs", "identityProvider": "ADFS"},
		"suffixes":       map[string]any{"storage": storageSuffix, "keyVaultDns": "vault.azsim.invalid"},
	}
}

func (c *call) openid(string) any {
	base := c.base()
	authority := strings.SplitN(strings.Trim(c.r.URL.Path, "/"), "/", 2)[0]
	root := base + "/" + authority
	return map[string]any{
		"issuer": root, "authorization_endpoint": root + "/oauth2/authorize", "token_endpoint": root + "/oauth2/token",
		"device_authorization_endpoint": root + "/oauth2/devicecode", "jwks_uri": root + "/discovery/keys",
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "private_key_jwt"},
		"response_types_supported":              []string{"code", "id_token"}, "scopes_supported": []string{"openid"},
		"subject_types_supported": []string{"pairwise"}, "id_token_signing_alg_values_supported": []string{"RS256"},
	}
}

// token answers POST …/oauth2/token: client_credentials by secret or by a
// federated token.
func (c *call) token() *reply {
	fail := func(code, format string) *reply {
		return &reply{status: http.StatusUnauthorized, body: map[string]any{"error": code, "error_description": format, "timestamp": c.now.UTC().Format(time.DateTime)}}
	}
	if c.r.Method != http.MethodPost {
		return fail("invalid_request", "AADSTS900561: The endpoint only accepts POST requests.")
	}
	form, err := formValues(c.body)
	if err != nil {
		return fail("invalid_request", "AADSTS900144: The request body cannot be read: "+err.Error())
	}
	id := form.Get("client_id")
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if grant := form.Get("grant_type"); grant != "client_credentials" {
		return fail("unsupported_grant_type", "AADSTS70003: The app requested an unsupported grant type '"+grant+"'.")
	}
	p := c.s.principalOf(id)
	if p == nil {
		return fail("unauthorized_client", "AADSTS700016: Application with identifier '"+id+"' was not found in the directory '"+c.s.Tenant+"'.")
	}
	c.principal = p
	if assertion := form.Get("client_assertion"); assertion != "" {
		cl, err := readClaims(assertion)
		if err != nil || p.Subject == "" || cl.Sub != p.Subject {
			return fail("invalid_client", "AADSTS700213: No matching federated identity record found for presented assertion subject '"+cl.Sub+"'.")
		}
		if cl.Exp != 0 && c.now.Unix() >= cl.Exp {
			return fail("invalid_client", "AADSTS700024: Client assertion is not within its valid time range.")
		}
	} else if p.Secret == "" || form.Get("client_secret") != p.Secret {
		return fail("invalid_client", "AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '"+id+"'.")
	}
	return ok(c.s.tokenBody(p, form.Get("resource")+form.Get("scope"), c.now))
}

// tokenBody is what a token endpoint answers. The caller holds the lock.
func (s *Server) tokenBody(p *principal, audience string, now time.Time) map[string]any {
	token, expires := s.issue(p, strings.TrimSuffix(audience, ".default"), now)
	return map[string]any{
		"token_type": "Bearer", "access_token": token,
		"expires_in": int(expires.Sub(now).Seconds()), "ext_expires_in": int(expires.Sub(now).Seconds()),
		"expires_on": json.Number(unix(expires)), "not_before": json.Number(unix(now)), "resource": audience,
	}
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func formValues(body []byte) (url.Values, error) { return url.ParseQuery(string(body)) }
