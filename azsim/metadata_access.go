package azsim

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// imdsPath is where the metadata services of all instances are for other processes
// of this computer: what an instance reaches at http://169.254.169.254/metadata/… is
// at imdsPath, its id and /metadata/….
const imdsPath = "/azsim/imds/"

// IMDS is the metadata service of an instance, as its machine reaches it at
// 169.254.169.254, without a Substrate between. It serves until the instance is
// gone, and then answers with 410.
func (s *Server) IMDS(instanceID string) (http.Handler, error) {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.concerned([]string{instanceID})
	if err != nil {
		return nil, fmt.Errorf("metadata service of %w", err)
	}
	return s.imdsOf(list[0]), nil
}

// serveIMDS passes a request on to the metadata service of the instance whose id the
// path begins with.
func (c *call) serveIMDS(w http.ResponseWriter, path string) {
	if !c.mayControl() {
		c.finish(w, c.encoded(errorReply(refuse(http.StatusForbidden, "Forbidden", "The metadata services are for this computer, or for the bearer of the admin token."))))
		return
	}
	// A name in the id may begin so too.
	at := strings.LastIndex(path, "/metadata")
	h, err := c.s.IMDS(path[:max(at, 0)])
	if at < 0 || err != nil {
		c.finish(w, c.encoded(errorReply(refuse(http.StatusNotFound, "NotFound", "There is no such metadata service: want the id of an instance, followed by /metadata/…."))))
		return
	}
	r := c.r.Clone(c.r.Context())
	r.URL.Path, r.URL.RawPath = path[at:], ""
	r.Body = io.NopCloser(bytes.NewReader(c.body))
	h.ServeHTTP(w, r)
}
