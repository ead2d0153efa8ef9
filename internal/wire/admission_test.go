package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func aProof() Proof {
	return Proof{ResourceID: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p/virtualMachines/0",
		Nonce: "abc-_09", PublicKey: []byte{1, 2}, Document: "MIIE", Signature: []byte{3}}
}

func TestProofThroughAHeader(t *testing.T) {
	want := aProof()
	header, err := want.Header()
	if err != nil || strings.ContainsAny(header, "\r\n") {
		t.Fatal(header, err)
	}
	got, err := ParseProof(header)
	if err != nil || got.ResourceID != want.ResourceID || got.Nonce != want.Nonce || got.Document != want.Document || !bytes.Equal(got.PublicKey, want.PublicKey) || !bytes.Equal(got.Signature, want.Signature) {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := ParseProof(strings.Replace(header, "Ortet", "oRTET", 1)); err != nil {
		t.Errorf("a scheme in other letters: %v", err)
	}
}

// The largest proof that is taken fits a header.
func TestLargestProofFits(t *testing.T) {
	p := aProof()
	p.Document, p.ResourceID, p.Nonce = strings.Repeat("A", 13<<10), strings.Repeat("r", maxResourceID), strings.Repeat("n", maxNonce)
	p.PublicKey, p.Signature = make([]byte, maxKey), make([]byte, maxKey)
	header, err := p.Header()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseProof(header); err != nil {
		t.Errorf("%d bytes: %v", len(header), err)
	}
}

func TestHostileProofs(t *testing.T) {
	encoded := func(text string) string { return "Ortet " + base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for name, change := range map[string]func(*Proof){
		"no id":          func(p *Proof) { p.ResourceID = "" },
		"long id":        func(p *Proof) { p.ResourceID = strings.Repeat("x", maxResourceID+1) },
		"line in the id": func(p *Proof) { p.ResourceID = "/subscriptions/\nx" },
		"no nonce":       func(p *Proof) { p.Nonce = "" },
		"shell in nonce": func(p *Proof) { p.Nonce = "$(reboot)" },
		"long nonce":     func(p *Proof) { p.Nonce = strings.Repeat("x", maxNonce+1) },
		"no document":    func(p *Proof) { p.Document = "" },
		"long document":  func(p *Proof) { p.Document = strings.Repeat("x", maxDocument+1) },
		"no key":         func(p *Proof) { p.PublicKey = nil },
		"long key":       func(p *Proof) { p.PublicKey = make([]byte, maxKey+1) },
		"no signature":   func(p *Proof) { p.Signature = nil },
		"long signature": func(p *Proof) { p.Signature = make([]byte, maxKey+1) },
	} {
		p := aProof()
		change(&p)
		header, err := p.Header()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseProof(header); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	good, err := json.Marshal(aProof())
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{"", "Ortet", "Ortet ", "Bearer x", "Ortet !", "Ortet " + strings.Repeat("A", MaxProof), encoded(`{}`), encoded(`[]`), encoded(string(good) + "{}"),
		encoded(strings.Replace(string(good), "{", `{"node":"x",`, 1))} {
		if _, err := ParseProof(header); err == nil {
			t.Errorf("%.40q was taken", header)
		}
	}
}

// What binds a request: any part that is another gives another text or nonce.
func TestWhatIsSigned(t *testing.T) {
	base := string(SignedText(JoinPath, []byte("{}"), "n"))
	for _, other := range []string{string(SignedText(LeavePath, []byte("{}"), "n")), string(SignedText(JoinPath, []byte("{ }"), "n")), string(SignedText(JoinPath, []byte("{}"), "m"))} {
		if other == base {
			t.Error("two requests have one signed text")
		}
	}
	n := AttestedNonce("n", []byte("key"), "/id")
	if len(n) != 32 || strings.Trim(n, "0123456789abcdef") != "" {
		t.Errorf("%q, want 32 hex digits", n)
	}
	if slices.Contains([]string{AttestedNonce("m", []byte("key"), "/id"), AttestedNonce("n", []byte("kez"), "/id"), AttestedNonce("n", []byte("key"), "/ie")}, n) {
		t.Error("two requests have one nonce")
	}
}

func TestRequestsOfNodes(t *testing.T) {
	if r, err := ParseAdmission[JoinRequest]([]byte(`{"distribution":"rke2","callbackPort":9440}` + "\n")); err != nil || r.Distribution != RKE2 {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := ParseAdmission[LeaveRequest]([]byte(`{"cause":"Preempt","withinSeconds":30,"stay":true}`)); err != nil || !r.Stay {
		t.Errorf("%+v %v", r, err)
	}
	for _, text := range []string{`{"distribution":"aks","callbackPort":9440}`, `{"distribution":"k3s","callbackPort":0}`, `{"distribution":"k3s","callbackPort":65536}`, `{"distribution":"k3s","callbackPort":"9440"}`,
		`{"distribution":"k3s","callbackPort":9440,"nodeName":"x"}`, `{"distribution":"k3s","callbackPort":9440}{}`, `null x`, ``} {
		if r, err := ParseAdmission[JoinRequest]([]byte(text)); err == nil || r != (JoinRequest{}) {
			t.Errorf("%s was taken", text)
		}
	}
	for _, text := range []string{`{"cause":"","withinSeconds":30}`, `{"cause":"pre empt","withinSeconds":30}`, `{"cause":"Preempt","withinSeconds":0}`, `{"cause":"Preempt","withinSeconds":901}`, `{"cause":"` + strings.Repeat("A", 65) + `","withinSeconds":3}`} {
		if _, err := ParseAdmission[LeaveRequest]([]byte(text)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestRefusalsOfTheServer(t *testing.T) {
	if r, ok := ParseRefusal([]byte(`{"reason":"NodeReady","message":"m","retryAfterSeconds":5}`)); !ok || r.After != 5 {
		t.Errorf("%+v %v", r, ok)
	}
	for _, text := range []string{``, `{}`, `<html>`, `{"reason":"not ready"}`, `{"reason":"A","retryAfterSeconds":-1}`, `{"reason":"A","retryAfterSeconds":3601}`, `{"reason":"A","message":"a\nb"}`, `{"reason":"` + strings.Repeat("A", 65) + `"}`} {
		if r, ok := ParseRefusal([]byte(text)); ok {
			t.Errorf("%s was taken: %+v", text, r)
		}
	}
	// A server may be newer than the node.
	if j, err := ParseAnswer[Join]([]byte(`{"nodeName":"n","new":1}`)); err != nil || j.NodeName != "n" {
		t.Errorf("%+v %v", j, err)
	}
	if _, err := ParseAnswer[Join](make([]byte, MaxAdmission+1)); err == nil {
		t.Error("an answer without bounds")
	}
}

func FuzzParseProof(f *testing.F) {
	header, err := aProof().Header()
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{header, "Ortet ", "ortet e30", "Bearer x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		p, err := ParseProof(header)
		if err != nil {
			return
		}
		if err := p.Validate(); err != nil {
			t.Fatalf("taken, and invalid: %v", err)
		}
		again, err := p.Header()
		if err != nil {
			t.Fatal(err)
		}
		if q, err := ParseProof(again); len(again) <= MaxProof && (err != nil || q.ResourceID != p.ResourceID || q.Document != p.Document) {
			t.Fatalf("%+v became %+v: %v", p, q, err)
		}
	})
}

func FuzzParseAdmission(f *testing.F) {
	for _, s := range []string{`{"distribution":"k3s","callbackPort":9440}`, `{"cause":"Preempt","withinSeconds":30}`, `{"cause":"Asked"}`, `{"reason":"NodeReady","message":"m"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if r, err := ParseAdmission[JoinRequest](text); err == nil && r.Validate() != nil {
			t.Fatalf("%+v", r)
		}
		if r, err := ParseAdmission[LeaveRequest](text); err == nil && r.Validate() != nil {
			t.Fatalf("%+v", r)
		}
		if r, err := ParseAdmission[LeftRequest](text); err == nil && r.Validate() != nil {
			t.Fatalf("%+v", r)
		}
		if r, ok := ParseRefusal(text); ok && (r.Reason == "" || len(r.Message) > maxMessage) {
			t.Fatalf("%+v", r)
		}
	})
}
