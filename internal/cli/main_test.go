package cli

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestMain trusts the certificate that all TLS servers of net/http/httptest have: Azure's
// client has no other way to trust a server of a test, and Go reads the file once.
func TestMain(m *testing.M) {
	server := httptest.NewTLSServer(nil)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	server.Close()
	dir, err := os.MkdirTemp("", "ortet-cli-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "roots.pem"), text, 0o600)
	}
	if err != nil {
		panic(err)
	}
	_, _ = os.Setenv("SSL_CERT_FILE", filepath.Join(dir, "roots.pem")), os.Setenv("SSL_CERT_DIR", dir)
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
