package push

import "encoding/json"

// MarshalJSON writes the duration as text, "2m30s".
func (p Plan) MarshalJSON() ([]byte, error) {
	type fields Plan
	return json.Marshal(struct {
		fields
		Expected string `json:"expected"`
	}{fields(p), p.Expected.String()})
}

// MarshalJSON writes the duration as text, "2m30s".
func (r Result) MarshalJSON() ([]byte, error) {
	type fields Result
	return json.Marshal(struct {
		fields
		Took string `json:"took"`
	}{fields(r), r.Took.String()})
}
