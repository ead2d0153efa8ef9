package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/cryptotest"
)

const defaultSeed = 20261121

var seed = flag.Uint64("seed", defaultSeed, "seed of all planted strings and keys")

const (
	digits  = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	base62  = digits + upper + lower
	base32  = upper + "234567"
	hexes   = "0123456789abcdef"
	urlSafe = base62 + "-_"
)

// gen makes strings and keys: the same ones for the same seed and the same order
// of calls.
type gen struct {
	t testing.TB
	r *rand.Rand
}

func newGen(t *testing.T) *gen {
	t.Helper()
	cryptotest.SetGlobalRandom(t, *seed)
	return &gen{t: t, r: rand.New(rand.NewPCG(*seed, *seed>>7+1))}
}

func (g *gen) of(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[g.r.IntN(len(alphabet))]
	}
	return string(b)
}

func (g *gen) hex(n int) string { return g.of(hexes, n) }
func (g *gen) b62(n int) string { return g.of(base62, n) }

func (g *gen) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.r.UintN(256))
	}
	return b
}

// b64 is n random bytes in base64.
func (g *gen) b64(n int) string  { return base64.StdEncoding.EncodeToString(g.bytes(n)) }
func (g *gen) b64u(n int) string { return base64.RawURLEncoding.EncodeToString(g.bytes(n)) }

func (g *gen) uuid() string {
	b := g.bytes(16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	s := hex.EncodeToString(b)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// password is what a password manager makes, without what has to be quoted in shells.
func (g *gen) password(n int) string {
	return g.of(lower, 1) + g.of(base62+"!%+,-.=@_", n-3) + g.of(digits, 1) + g.of(upper, 1)
}

// phrase is what a person makes up.
func (g *gen) phrase() string {
	words := []string{"Winter", "tiger", "Harbour", "Sesam", "copper", "Falcon", "monday", "Zurich", "pepper", "Orchid", "delta", "Rhubarb"}
	pick := func() string { return words[g.r.IntN(len(words))] }
	return pick() + g.of("!-_.", 1) + pick() + g.of(digits, 4)
}

// checked62 is n characters and their CRC-32 in six characters of base 62, as
// GitHub and npm have it.
func (g *gen) checked62(n int) string {
	body := g.b62(n)
	sum, tail := crc32.ChecksumIEEE([]byte(body)), [6]byte{}
	for i := len(tail) - 1; i >= 0; i-- {
		tail[i] = base62[sum%62]
		sum /= 62
	}
	return body + string(tail[:])
}

func (g *gen) github() string  { return "ghp_" + g.checked62(30) }
func (g *gen) ghFine() string  { return "github_pat_" + g.b62(22) + "_" + g.b62(59) }
func (g *gen) gitlab() string  { return "glpat-" + g.of(urlSafe, 20) }
func (g *gen) npm() string     { return "npm_" + g.checked62(30) }
func (g *gen) awsID() string   { return "AKIA" + g.of(base32, 16) }
func (g *gen) awsKey() string  { return g.of(base62+"/+", 40) }
func (g *gen) vault() string   { return "hvs." + g.of(urlSafe, 95) }
func (g *gen) kubeadm() string { return g.of(lower+digits, 6) + "." + g.of(lower+digits, 16) }
func (g *gen) k3s() string     { return "K10" + g.hex(64) + "::server:" + g.hex(32) }
func (g *gen) k3sPlain() string {
	return "K10" + g.hex(64) + "::" + g.kubeadm()
}

// entra is the client secret of a service principal, storage an account's key.
func (g *gen) entra() string { return g.b62(3) + "8Q~" + g.of(base62+"_~.-", 34) }
func (g *gen) storage() string {
	return g.of(base62+"/+", 76) + "+ASt" + g.of(base62, 5) + "A=="
}

func (g *gen) slack() string {
	return "xoxb-" + g.of(digits[1:], 12) + "-" + g.of(digits[1:], 13) + "-" + g.b62(24)
}

// devops is a personal access token of Azure DevOps, of today's form.
func (g *gen) devops() string {
	return g.b62(52) + "JQQJ99BK" + "ACAAAAAAAAAAAAAS" + "AZDO" + g.b62(4)
}

// acr is an access key of Azure Container Registry, of today's form.
func (g *gen) acr() string { return g.b62(42) + "+ACR" + g.b62(6) }

func (g *gen) sas() string {
	sig := strings.NewReplacer("+", "%2B", "/", "%2F", "=", "%3D").Replace(g.b64(32))
	return "sv=2024-11-04&ss=b&srt=sco&sp=rl&se=2027-03-01T08%3A00%3A00Z&st=2026-11-01T08%3A00%3A00Z&spr=https&sig=" + sig
}

// jwt is a token of three parts, unsigned by anybody: the last one is random.
func (g *gen) jwt(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc(fmt.Appendf(nil, `{"alg":"RS256","kid":"%s"}`, g.b64u(32))) + "." + enc([]byte(claims)) + "." + g.b64u(256)
}

func (g *gen) saToken() string {
	return g.jwt(fmt.Sprintf(`{"aud":["https://kubernetes.default.svc.cluster.local"],"exp":1795000000,"iat":1763464000,"iss":"https://kubernetes.default.svc.cluster.local","jti":"%s","kubernetes.io":{"namespace":"kube-system","node":{"name":"%s"},"pod":{"name":"kube-proxy-x7lpn","uid":"%s"},"serviceaccount":{"name":"kube-proxy","uid":"%s"}},"nbf":1763464000,"sub":"system:serviceaccount:kube-system:kube-proxy"}`,
		g.uuid(), donorName, g.uuid(), g.uuid()))
}

func (g *gen) entraToken() string {
	return g.jwt(fmt.Sprintf(`{"aud":"https://management.azure.com/","iss":"https://sts.windows.net/%s/","exp":1795000000,"appid":"%s","oid":"%s","xms_mirid":"/subscriptions/x"}`, g.uuid(), g.uuid(), g.uuid()))
}

// check ends the test where a key cannot be made.
func check[T any](g *gen) func(T, error) T {
	return func(v T, err error) T {
		g.t.Helper()
		if err != nil {
			g.t.Fatal(err)
		}
		return v
	}
}
