package azsim

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// url is where the operation can be asked about. It is as long as Azure's.
func (o *operation) url(base string, monitor bool) string {
	at := base + "/subscriptions/" + o.target.subscription
	query := "?"
	switch o.segment {
	case deploymentStatuses:
		at = base + o.target.String() + "/" + o.segment + "/" + o.id
	case groupResults:
		at += "/" + o.segment + "/" + o.id
	default:
		at += "/providers/" + o.ns + "/locations/" + o.location + "/" + o.segment + "/" + o.id
		if query += "p=" + o.id[:8] + "&"; monitor {
			query += "monitor=true&"
		}
	}
	return at + query + "api-version=" + o.version + o.signature()
}

// signature is what Azure Resource Manager adds to the URLs of operations since 2024: a time,
// a chain of certificates, a signature and a hash, kilobytes in all (recordings of the Azure
// CLI, August 2024). Here they are of the same length and mean nothing.
func (o *operation) signature() string {
	text := func(name string, length int) string {
		var b []byte
		for n := 0; len(b) < length; n++ {
			sum := sha256.Sum256([]byte(o.id + name + strconv.Itoa(n)))
			b = append(b, sum[:]...)
		}
		return base64.RawURLEncoding.EncodeToString(b)[:length]
	}
	ticks := o.start.UnixNano()/100 + 621355968000000000 // of .NET, since the year 1
	return fmt.Sprintf("&t=%d&c=MII%s&s=%s&h=%s", ticks, text("c", 2400), text("s", 342), text("h", 43))
}

// verbatim refuses a URL of an operation that the client made itself, or shortened. Azure's
// words are not known.
func (c *call) verbatim(op *operation) error {
	_, query, _ := strings.Cut(op.url("", c.query("monitor") == "true"), "?")
	want, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	given := c.r.URL.Query()
	for _, name := range sortedKeys(want) {
		if given.Get(name) != want.Get(name) {
			return refuse(http.StatusBadRequest, "InvalidParameter",
				"The URL of operation '%s' has not the '%s' that was answered: azsim takes these URLs verbatim only.", op.id, name)
		}
	}
	return nil
}
