package azsim

import (
	"net/http"
	"time"

	"github.com/ortet/ortet/azsim/metadata"
)

// attestor returns who signs the documents of a region's instances. The server's own
// is made when it is first asked for, since its key takes time.
func (s *Server) attestor(location string) (*metadata.Attestor, error) {
	s.attesting.Lock()
	defer s.attesting.Unlock()
	if s.Attestor == nil {
		a, err := metadata.NewAttestor(metadata.LeafOptions{Names: metadata.RegionNames(s.Location)}, time.Now())
		if err != nil {
			return nil, err
		}
		s.Attestor = a
	}
	where := normLocation(location)
	if where == normLocation(s.Location) {
		return s.Attestor, nil
	}
	if a := s.attestors[where]; a != nil {
		return a, nil
	}
	a, err := s.Attestor.WithLeaf(metadata.LeafOptions{Names: metadata.RegionNames(where)})
	if err != nil {
		return nil, err
	}
	if s.attestors == nil {
		s.attestors = map[string]*metadata.Attestor{}
	}
	s.attestors[where] = a
	return a, nil
}

// AttestationPEM is the certificate of the root of who signs attested documents. It
// is empty where no key could be made.
func (s *Server) AttestationPEM() []byte {
	s.init()
	a, err := s.attestor(s.Location)
	if err != nil {
		s.Log.Error("no attestation", "error", err)
		return nil
	}
	return a.RootPEM()
}

// attest signs the document of an instance.
func (s *Server) attest(e *entry, nonce string) (string, error) {
	var d metadata.AttestedDocument
	var location string
	s.locked(func() {
		x, body := instanceOf(e)
		location = val(body.Location)
		d = metadata.NewAttestedDocument(x.vmID, e.id.subscription, nonce, time.Now())
		d.SKU, d.LicenseType = val(x.image.ref.SKU), val(x.profile.LicenseType)
	})
	a, err := s.attestor(location)
	if err != nil {
		return "", err
	}
	return a.Sign(d, metadata.SignOptions{Chain: s.AttestationChain})
}

// Publication serves the issuer of attested documents alone, at the path of its
// address, on whatever host: see metadata.Attestor.ServeHTTP. The Server itself does as well.
func (s *Server) Publication() http.Handler {
	s.init()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := s.attestor(s.Location)
		if err != nil {
			s.Log.Error("no attestation", "error", err)
			http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
			return
		}
		a.ServeHTTP(w, r)
	})
}
