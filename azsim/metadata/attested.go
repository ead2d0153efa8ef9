package metadata

import (
	"net/http"
	"slices"
	"unicode/utf8"
)

// maxNonce is how many characters a nonce may have: by Microsoft's API specification
// of the service (azure-rest-api-specs, imds.json of 2019-08-15). Its documentation
// says ten digits; clients that bind a hash have long sent 32 characters.
const maxNonce = 32

// attestedSince is the first API version that has attested data.
const attestedSince = "2018-10-01"

// serveAttested answers with the signed document. What is wrong with a nonce is
// refused as other parameters are: the words are inferred.
func (h Service) serveAttested(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		refuseMethod(w)
		return
	}
	q := r.URL.Query()
	if v := q.Get("api-version"); v < attestedSince || !slices.Contains(versions(), v) {
		refuseVersion(w)
		return
	}
	nonce := q.Get("nonce")
	if !utf8.ValidString(nonce) || utf8.RuneCountInString(nonce) > maxNonce {
		Refuse(w, http.StatusBadRequest, "Bad request. Invalid nonce")
		return
	}
	if h.Instance() == nil {
		refuseGone(w)
		return
	}
	signature, err := h.Attest(nonce)
	if err != nil {
		Refuse(w, http.StatusInternalServerError, "Internal server error")
		return
	}
	write(w, http.StatusOK, map[string]any{"encoding": "pkcs7", "signature": signature})
}
