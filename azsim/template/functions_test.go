package template_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim/template"
)

const group = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/demo"

func scope() template.Scope {
	return template.Scope{
		Subscription: "11111111-1111-1111-1111-111111111111", Tenant: "22222222-2222-2222-2222-222222222222",
		Provider: func(namespace string) map[string]any {
			if !strings.EqualFold(namespace, "A.B") {
				return nil
			}
			return map[string]any{"namespace": "A.B", "resourceTypes": []any{map[string]any{"resourceType": "c", "apiVersions": []string{"2020-02-02"}}}}
		},
		Group: "demo", Location: "westeurope", Tags: map[string]string{"env": "test"}, Deployment: "first",
		Environment: map[string]any{"suffixes": map[string]any{"storage": "core.windows.net"}},
		Now:         time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
	}
}

// world answers reference and list functions with what was asked.
type world struct{}

func (world) Reference(id, version string, full bool) (any, error) {
	return map[string]any{"id": id, "version": version, "full": full}, nil
}

func (world) List(function, id, version string, body any) (any, error) {
	return map[string]any{"keys": []any{map[string]any{"value": function + " " + id + " " + version}}}, nil
}

// document is a template with the given members.
func document(members string) string {
	return `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#", "contentVersion": "1.0.0.0", ` + members + `}`
}

func expand(text string, parameters map[string]any) (*template.Deployment, error) {
	parsed, err := template.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return parsed.Expand(scope(), parameters)
}

// evaluate returns the JSON of an expression's value in a resource's body.
func evaluate(t *testing.T, expression string) (string, error) {
	t.Helper()
	quoted, _ := json.Marshal(expression)
	d, err := expand(document(fmt.Sprintf(`
		"variables": {"list": ["one", "two", "three"], "object": {"name": "n", "nested": {"Deep": [1, 2]}}},
		"resources": [{"type": "A.B/c", "apiVersion": "1", "name": "x", "properties": {"v": %s}}]`, quoted)), nil)
	if err != nil {
		return "", err
	}
	body, err := d.Resources[0].Body(world{})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body["properties"].(map[string]any)["v"]); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String()), nil
}

// Most values are those of the examples in Microsoft's "ARM template functions".
func TestFunctions(t *testing.T) {
	for expression, want := range map[string]string{
		`[[literal]`:                           `"[literal]"`,
		`[open`:                                `"[open"`,
		`[ 'it''s' ]`:                          `"it's"`,
		`[-5]`:                                 `-5`,
		`[variables('list')[1]]`:               `"two"`,
		`[Variables('LIST')[sub(3, 1)]]`:       `"three"`,
		`[variables('object').nested.deep[0]]`: `1`,
		`[variables('object')['nested']['Deep']]`: `[1,2]`,
		`[add(5, sub(3, 1))]`:                     `7`,
		`[equals(variables('object').nested, createObject('Deep', createArray(1, 2)))]`: `true`,
		`[concat('a', 1, true())]`:                                                 `"a1True"`,
		`[concat(createArray('1-1'), createArray('2'))]`:                           `["1-1","2"]`,
		`[format('{0}, {1}. {{{2}}}', 'Hello', 'User', 7)]`:                        `"Hello, User. {7}"`,
		`[toLower('One Two')]`:                                                     `"one two"`,
		`[toUpper('One Two')]`:                                                     `"ONE TWO"`,
		`[substring('one two three', 4, 3)]`:                                       `"two"`,
		`[replace('123-123-1234', '-', '')]`:                                       `"1231231234"`,
		`[length(variables('list'))]`:                                              `3`,
		`[length('One Two Three')]`:                                                `13`,
		`[length(variables('object'))]`:                                            `2`,
		`[empty('')]`:                                                              `true`,
		`[empty(null())]`:                                                          `true`,
		`[contains('OneTwoThree', 'e')]`:                                           `true`,
		`[contains(variables('object'), 'NAME')]`:                                  `true`,
		`[contains(variables('list'), 'Two')]`:                                     `false`,
		`[string(variables('object'))]`:                                            `"{\"name\":\"n\",\"nested\":{\"Deep\":[1,2]}}"`,
		`[int('4')]`:                                                               `4`,
		`[createObject('a', 1, 'b', createObject())]`:                              `{"a":1,"b":{}}`,
		`[if(equals('a', 'a'), 'yes', variables('list')[9])]`:                      `"yes"`,
		`[equals(1, '1')]`:                                                         `false`,
		`[and(true(), not(false()), true())]`:                                      `true`,
		`[or(false(), false())]`:                                                   `false`,
		`[base64('one, two, three')]`:                                              `"b25lLCB0d28sIHRocmVl"`,
		`[resourceGroup().id]`:                                                     `"` + group + `"`,
		`[resourceGroup().tags.env]`:                                               `"test"`,
		`[subscription().subscriptionId]`:                                          `"11111111-1111-1111-1111-111111111111"`,
		`[environment().suffixes.storage]`:                                         `"core.windows.net"`,
		`[resourceID('Microsoft.Network/virtualNetworks/subnets', 'v', 's')]`:      `"` + group + `/providers/Microsoft.Network/virtualNetworks/v/subnets/s"`,
		`[resourceId('other', 'A.B/c', 'x')]`:                                      `"/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/other/providers/A.B/c/x"`,
		`[resourceId('33333333-3333-3333-3333-333333333333', 'g', 'A.B/c', 'x')]`:  `"/subscriptions/33333333-3333-3333-3333-333333333333/resourceGroups/g/providers/A.B/c/x"`,
		`[subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'r')]`: `"/subscriptions/11111111-1111-1111-1111-111111111111/providers/Microsoft.Authorization/roleDefinitions/r"`,
		`[extensionResourceId(resourceGroup().id, 'Microsoft.Authorization/locks', 'l')]`: `"` + group + `/providers/Microsoft.Authorization/locks/l"`,
		`[reference('/other', '2020-01-01', 'Full')]`:                                     `{"full":true,"id":"/other","version":"2020-01-01"}`,
		`[listKeys('A.B/c/y', '7').keys[0].value]`:                                        `"listKeys ` + group + `/providers/A.B/c/y 7"`,
		`[array('a')]`:                                          `["a"]`,
		`[first(variables('list'))]`:                            `"one"`,
		`[last('abc')]`:                                         `"c"`,
		`[first(createArray())]`:                                `null`,
		`[skip(createArray(1, 2, 3), 2)]`:                       `[3]`,
		`[take('abcde', 9)]`:                                    `"abcde"`,
		`[range(5, 3)]`:                                         `[5,6,7]`,
		`[union(createArray(1, 2), createArray(2, 3))]`:         `[1,2,3]`,
		`[intersection(createArray(1, 2), createArray(2))]`:     `[2]`,
		`[union(json('{"a":{"x":1}}'), json('{"a":{"y":2}}'))]`: `{"a":{"x":1,"y":2}}`,
		`[items(createObject('b', 2, 'a', 1))]`:                 `[{"key":"a","value":1},{"key":"b","value":2}]`,
		`[objectKeys(createObject('b', 2, 'a', 1))]`:            `["a","b"]`,
		`[join(createArray('a', 1), '-')]`:                      `"a-1"`,
		`[coalesce(null(), 'x', 'y')]`:                          `"x"`,
		`[greaterOrEquals(2, 2)]`:                               `true`,
		`[less('b', 'a')]`:                                      `false`,
		`[min(createArray(3, 1, 2))]`:                           `1`,
		`[max(3, 7)]`:                                           `7`,
		`[mul(3, 4)]`:                                           `12`,
		`[div(8, 3)]`:                                           `2`,
		`[mod(7, 3)]`:                                           `1`,
		`[bool('True')]`:                                        `true`,
		`[trim(' a ')]`:                                         `"a"`,
		`[startsWith('abcdef', 'AB')]`:                          `true`,
		`[endsWith('abcdef', 'e')]`:                             `false`,
		`[indexOf('héllo', 'L')]`:                               `2`,
		`[lastIndexOf('test', 'x')]`:                            `-1`,
		`[split('a;b,c', createArray(';', ','))]`:               `["a","b","c"]`,
		`[padLeft(123, 5, '0')]`:                                `"00123"`,
		`[base64ToString('b25l')]`:                              `"one"`,
		`[base64ToJson('eyJhIjoxfQ==').a]`:                      `1`,
		`[dataUriToString(dataUri('Hello'))]`:                   `"Hello"`,
		`[uriComponent('a b/c')]`:                               `"a%20b%2Fc"`,
		`[uriComponentToString('a%20b%2Fc')]`:                   `"a b/c"`,
		`[uri('http://h.org/a/', 'b/c.sh')]`:                    `"http://h.org/a/b/c.sh"`,
		`[tenant().tenantId]`:                                   `"22222222-2222-2222-2222-222222222222"`,
		`[tenantResourceId('A.B/c', 'x')]`:                      `"/providers/A.B/c/x"`,
		`[deployment().properties.mode]`:                        `"Incremental"`,
		`[providers('A.B', 'C').apiVersions[0]]`:                `"2020-02-02"`,
		`[providers('a.b').namespace]`:                          `"A.B"`,
		// Known values: of the Bicep compiler, and of RFC 4122's version 5.
		`[uniqueString('test')]`:           `"rbgf3xv4ufgzg"`,
		`[uniqueString('hello', 'world')]`: `"a7wkljktk6wne"`,
		`[uniqueString('/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/my-rg')]`: `"bmg7c6xu4tw46"`,
		`[equals(guid('a', 'b'), guid('a-b'))]`:                                                      `true`,
	} {
		if got, err := evaluate(t, expression); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", expression, got, err, want)
		}
	}
}

func TestRefusedExpressions(t *testing.T) {
	for expression, want := range map[string]string{
		`[foo('a')]`:                       `The template function 'foo' is not valid`,
		`[concat('a'` + `)b]`:              `is not valid: unexpected b at position 11`,
		`['open]`:                          `unexpected the end`,
		`[]`:                               `unexpected the end`,
		`[parameters('x')]`:                `The template parameter 'x' is not found`,
		`[if(true(), '', variables('y'))]`: `The template variable 'y' is not found`,
		`[toLower(1)]`:                     `argument 1 must be of type 'String', but is of type 'Integer'`,
		`[toLower('a', 'b')]`:              `requires '1' argument(s) while '2' were provided`,
		`[variables('object').size]`:       `The language expression property 'size' doesn't exist, available properties are 'name, nested'`,
		`[variables('list')[3]]`:           `array index '3' is out of bounds`,
		`[variables('list').name]`:         `property of an array must be an integer`,
		`[substring('abc', 2, 5)]`:         `must refer to a location within the string`,
		`[format('{1}', 'a')]`:             `the format is invalid`,
		`[copyIndex()]`:                    `can only be used in a resource with copy specified`,
		`[utcNow()]`:                       `'utcNow' is not expected at this location`,
		`[resourceId('A.B/c/d', 'x')]`:     `the type 'A.B/c/d' requires '2' resource name argument(s)`,
		`[reference('nothing')]`:           `could not find template resource or resource copy with this name`,
		`[reference('x')]`:                 `cannot reference itself`,
		`[div(1, 0)]`:                      `the divisor must not be 0`,
		`[range(0, 10001)]`:                `the count must be between 0 and 10000`,
		`[json('{')]`:                      `the value is not valid JSON`,
		`[min('a')]`:                       `must be of type 'Integer'`,
		`[providers('X.Y', 'z')]`:          `the provider 'X.Y' is not known`,
		`[providers('A.B', 'z')]`:          `has no resource type 'z'`,
		`[` + strings.Repeat("not(", 300) + `true()` + strings.Repeat(")", 300) + `]`: `nested too deeply`,
	} {
		_, err := evaluate(t, expression)
		var refused *template.Error
		if !errors.As(err, &refused) || refused.Code != "InvalidTemplate" || !strings.Contains(refused.Message, want) {
			t.Errorf("%.60s: %v; want InvalidTemplate with %q", expression, err, want)
		}
	}
}

// FuzzExpression: any expression is evaluated or refused, and never crashes.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{`concat('a', string(1))`, `variables('list')[0].a`, `if(true(), 1, foo())`, `format('{0:N0}{{', 1)`,
		`substring('abc', -1, 9223372036854775807)`, `reference('x', '1', 'Full').a`, `createObject('a', 1)`, `utcNow('''f')`, `'`, `a.`, `a(`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		got, err := evaluate(t, "["+expression+"]")
		var refused *template.Error
		if err != nil && !errors.As(err, &refused) {
			t.Errorf("%q: %v", expression, err)
		}
		if err == nil && got == "" {
			t.Errorf("%q: no value", expression)
		}
	})
}
