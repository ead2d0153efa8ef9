package azsim

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// consolePath is below which the server itself serves serial console logs, as
// Azure's storage does.
const consolePath = "bootdiagnostics"

// retrieveBootDiagnostics answers with links to the console's log that hold their
// own permission for a while.
func retrieveBootDiagnostics(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	x, body := instanceOf(e)
	d := x.bootDiagnostics()
	if d == nil {
		return nil, conflict("Boot diagnostics is not enabled for VM '%s'. Enable 'diagnosticsProfile.bootDiagnostics' in the model of scale set '%s'.", val(body.Name), x.set.id.name())
	}
	if d.storage != "" {
		return nil, conflict("Boot diagnostics of VM '%s' is stored in the storage account '%s', not in a managed one. Its blobs are named in the VM's instance view.", val(body.Name), d.storage)
	}
	life := 2 * time.Hour
	if q := c.query("sasUriExpirationTimeInMinutes"); q != "" {
		n, err := strconv.Atoi(q)
		if err != nil || n < 1 || n > 1440 {
			return nil, badParameter("sasUriExpirationTimeInMinutes", "The value of parameter sasUriExpirationTimeInMinutes is invalid. It is between 1 and 1440.")
		}
		life = time.Duration(n) * time.Minute
	}
	link := func(file string) string {
		path := "/" + consolePath + e.id.String() + "/" + file
		expiry := c.now.Add(life).UTC().Format(time.RFC3339)
		return c.base() + path + "?" + url.Values{"sv": {"2018-03-28"}, "sr": {"b"}, "sp": {"r"}, "se": {expiry}, "sig": {c.s.signLink(path, expiry)}}.Encode()
	}
	name := val(body.Name) + "." + x.vmID
	return ok(map[string]any{
		"consoleScreenshotBlobUri": link(name + screenshotBlob),
		"serialConsoleLogBlobUri":  link(name + serialLogBlob),
	}), nil
}

const (
	screenshotBlob = ".screenshot.bmp"
	serialLogBlob  = ".serialconsole.log"
)

// bootDiagnostics says where an instance's console is written.
type bootDiagnostics struct {
	storage string // the user's storage account; "" is a managed one
}

// bootDiagnostics is nil where it is off.
func (x *instance) bootDiagnostics() *bootDiagnostics {
	d := x.profile.DiagnosticsProfile
	if d == nil || d.BootDiagnostics == nil || !val(d.BootDiagnostics.Enabled) {
		return nil
	}
	return &bootDiagnostics{storage: strings.TrimRight(val(d.BootDiagnostics.StorageURI), "/")}
}

// view names the blobs of a storage account of the user's, without a permission
// to read them; those of a managed one are never shown (azure-cli issue 14539).
func (d *bootDiagnostics) view(name, vmID string) *armcompute.BootDiagnosticsInstanceView {
	if d.storage == "" {
		return &armcompute.BootDiagnosticsInstanceView{}
	}
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	blob := d.storage + "/bootdiagnostics-" + plain[:min(9, len(plain))] + "-" + vmID + "/" + name + "." + vmID
	return &armcompute.BootDiagnosticsInstanceView{ConsoleScreenshotBlobURI: ptr(blob + screenshotBlob), SerialConsoleLogBlobURI: ptr(blob + serialLogBlob)}
}

func (s *Server) signLink(path, expiry string) string {
	return base64.StdEncoding.EncodeToString(s.sign("console\n" + strings.ToLower(path) + "\n" + expiry))
}

// serveConsole answers a link of retrieveBootDiagnostics, whose path begins with
// consolePath. It needs no log-in: the link is the permission.
func (c *call) serveConsole() *reply {
	rest := strings.Trim(c.r.URL.Path, "/")[len(consolePath)+1:]
	q := c.r.URL.Query()
	want := c.s.signLink(c.r.URL.Path, q.Get("se"))
	until, err := time.Parse(time.RFC3339, q.Get("se"))
	if err != nil || !hmac.Equal([]byte(want), []byte(q.Get("sig"))) || c.now.After(until) {
		return blobError(http.StatusForbidden, "AuthenticationFailed", "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.")
	}
	if c.r.Header.Get("Authorization") != "" { // as storage does: a link and a token are one permission too many
		return blobError(http.StatusUnauthorized, "InvalidAuthenticationInfo", "Authentication information is not given in the correct format. Check the value of Authorization header.")
	}
	i := strings.LastIndexByte(rest, '/')
	if i < 0 || c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return blobError(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	}
	c.s.mu.Lock()
	e := c.s.findID("/" + rest[:i])
	c.s.mu.Unlock()
	if e == nil || !strings.HasSuffix(rest, serialLogBlob) {
		return blobError(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	}
	data, err := c.s.consoleOf(c.r.Context(), e)
	if err != nil {
		c.s.Log.Error("console not read", "instance", e.id.String(), "error", err)
		return blobError(http.StatusInternalServerError, "InternalError", "Server encountered an internal error. Please try again after some time.")
	}
	r := &reply{status: http.StatusOK, raw: data}
	if r.raw == nil {
		r.raw = []byte{}
	}
	r.header().Set("Content-Type", "text/plain")
	return r
}

func (s *Server) consoleOf(ctx context.Context, e *entry) ([]byte, error) {
	if s.Substrate == nil {
		return nil, nil
	}
	return s.Substrate.Console(ctx, e.id.key())
}

func blobError(status int, code, message string) *reply {
	r := &reply{status: status, raw: []byte(`<?xml version="1.0" encoding="utf-8"?><Error><Code>` + code + `</Code><Message>` + message + `</Message></Error>`)}
	r.header().Set("Content-Type", "application/xml")
	r.header().Set("X-Ms-Error-Code", code)
	return r
}
