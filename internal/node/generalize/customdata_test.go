package generalize

import "testing"

// What waagent and the platform write, and what is damaged.
func TestCustomDataOf(t *testing.T) {
	for _, c := range []struct {
		name, ovf, data string
		fails           bool
	}{
		{"namespace, lines", "<?xml version='1.0'?>\n<E><wa:CustomData a='>'>aGVs\r\n bG8=</wa:CustomData></E>", "hello", false},
		{"none", "<E><Other>aGVsbG8=</Other></E>", "", false},
		{"empty", "<E><CustomData/></E>", "", false},
		{"empty pair", "<E><CustomData></CustomData></E>", "", false},
		{"in a comment", "<E><!-- <CustomData>!</CustomData> --></E>", "", false},
		{"in a section", "<E><![CDATA[<CustomData>!</CustomData>]]></E>", "", false},
		{"a longer name", "<E><CustomDataSize>12</CustomDataSize></E>", "", false},
		{"no text", "", "", false},
		{"cut in it", "<E><CustomData>aGVs", "", true},
		{"cut before it", "<E><Other>x</Other>", "", true},
		{"cut in a tag", "<E><Other", "", true},
		{"cut in a comment", "<E><!-- ", "", true},
		{"elements in it", "<E><CustomData><b/>eA==</CustomData></E>", "", true},
		{"no base64", "<E><CustomData>!</CustomData></E>", "", true},
		{"nothing but a bracket", "<", "", true},
		{"no name", "<>", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := customDataOf([]byte(c.ovf))
			if (err != nil) != c.fails || string(data) != c.data {
				t.Errorf("%q, %v; want %q, an error: %t", data, err, c.data, c.fails)
			}
		})
	}
}
