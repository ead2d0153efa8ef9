package azsim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// A Principal is somebody who can log in: a service principal, or a managed
// identity.
type Principal struct {
	Name     string `json:"name,omitempty"`
	ClientID string `json:"clientId"`
	ObjectID string `json:"objectId,omitempty"` // "" is derived from ClientID
	Secret   string `json:"secret,omitempty"`   // "" cannot log in by secret
	// Subject allows log-in by a federated token whose "sub" it is, as
	// workload identity does: "system:serviceaccount:NAMESPACE:NAME".
	Subject string `json:"subject,omitempty"`
	// ResourceID is the ARM id of a user-assigned identity.
	ResourceID string  `json:"resourceId,omitempty"`
	Roles      []Grant `json:"roles,omitempty"`
}

// A Grant is one role assignment: a built-in role by name, or a role of its own
// by its actions.
type Grant struct {
	Role       string   `json:"role,omitempty"`  // "Owner", "Contributor", "Reader", or a name for Actions
	Scope      string   `json:"scope,omitempty"` // "" is the subscription
	Actions    []string `json:"actions,omitempty"`
	NotActions []string `json:"notActions,omitempty"`
}

type principal struct {
	Principal
	grants []*assignment
	gone   bool // deleted; its role assignments stay
}

// claims are what a token says.
type claims struct {
	Aud   string `json:"aud"`
	Iss   string `json:"iss"`
	Iat   int64  `json:"iat"`
	Nbf   int64  `json:"nbf"`
	Exp   int64  `json:"exp"`
	AppID string `json:"appid"`
	OID   string `json:"oid"`
	Sub   string `json:"sub"`
	Tid   string `json:"tid"`
	Ver   string `json:"ver"`
}

// issue makes an access token. The caller holds the lock.
func (s *Server) issue(p *principal, audience string, now time.Time) (token string, expires time.Time) {
	expires = now.Add(s.TokenLife)
	cl := claims{
		Aud: audience, Iss: "https://sts.windows.net/" + s.Tenant + "/", AppID: p.ClientID, OID: p.ObjectID, Sub: p.ObjectID,
		Iat: now.Unix(), Nbf: now.Unix(), Exp: expires.Unix(), Tid: s.Tenant, Ver: "1.0",
	}
	payload, err := json.Marshal(cl)
	if err != nil { // a struct of strings and numbers
		return "", now
	}
	enc := base64.RawURLEncoding
	signed := enc.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + enc.EncodeToString(payload)
	return signed + "." + enc.EncodeToString(s.sign(signed)), expires
}

func (s *Server) sign(text string) []byte {
	m := hmac.New(sha256.New, s.SigningKey)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// authenticate finds who sends the request. It runs under the lock.
func (c *call) authenticate() error {
	scheme, token, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
	if token == "" {
		return refuse(http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return refuse(http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is provided in an invalid format.")
	}
	cl, ok := c.s.verified(token)
	if !ok {
		return refuse(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
	}
	if c.now.Unix() >= cl.Exp {
		return expiredToken(time.Unix(cl.Exp, 0))
	}
	c.principal = c.s.principalOf(cl.AppID)
	if c.principal == nil {
		return refuse(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid: its principal '%s' does not exist any more.", cl.AppID)
	}
	return nil
}

// keptTokens is how many tokens whose signature was found right are remembered.
const keptTokens = 256

// verified returns the claims of a token that the server has signed. The caller
// holds the lock.
func (s *Server) verified(token string) (claims, bool) {
	if cl, known := s.tokens[token]; known {
		return cl, true
	}
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return claims{}, false
	}
	mac, err := base64.RawURLEncoding.DecodeString(token[i+1:])
	if err != nil || !hmac.Equal(mac, s.sign(token[:i])) {
		return claims{}, false
	}
	cl, err := readClaims(token)
	if err != nil {
		return claims{}, false
	}
	if len(s.tokens) >= keptTokens {
		clear(s.tokens)
	}
	s.tokens[token] = cl
	return cl, true
}

// readClaims reads a JWT's payload without a look at its signature.
func readClaims(token string) (claims, error) {
	var cl claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return cl, pathError{"token", "not a JWT"}
	}
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return cl, err
	}
	return cl, json.Unmarshal(data, &cl)
}

func expiredToken(at time.Time) *armError {
	return refuse(http.StatusUnauthorized, "ExpiredAuthenticationToken",
		"The access token expiry UTC time '%s' is earlier than current UTC time.", at.UTC().Format("1/2/2006 3:04:05 PM"))
}

// principalOf finds a principal by client id or object id.
func (s *Server) principalOf(id string) *principal {
	for _, p := range s.principals {
		if !p.gone && (strings.EqualFold(p.ClientID, id) || strings.EqualFold(p.ObjectID, id)) {
			return p
		}
	}
	return nil
}

// initPrincipals takes over the principals that the server is given.
func (s *Server) initPrincipals() {
	list := s.Principals
	if len(list) == 0 {
		list = []Principal{{Name: "owner", ClientID: DefaultClientID, Secret: DefaultClientSecret, Roles: []Grant{{Role: "Owner"}}}}
	}
	for _, p := range list {
		if p.ObjectID == "" {
			sum := sha256.Sum256([]byte("object of " + strings.ToLower(p.ClientID)))
			p.ObjectID = uuidOf(sum[:])
		}
		np := &principal{Principal: p}
		s.principals = append(s.principals, np)
		for _, g := range p.Roles {
			s.grant(np, g)
		}
	}
}

// identityAt finds the principal of a user-assigned identity.
func (s *Server) identityAt(id string) *principal {
	for _, p := range s.principals {
		if !p.gone && p.ResourceID != "" && strings.EqualFold(p.ResourceID, id) {
			return p
		}
	}
	return nil
}
