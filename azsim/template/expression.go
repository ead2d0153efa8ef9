package template

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxNesting bounds the recursion of the parser; ARM documents no limit.
const maxNesting = 200

// A node is a parsed expression: literal, call or access.
type node interface{}

type (
	literal struct{ value any } // string or int64
	call    struct {
		name     string
		args     []node
		function function
	}
	access struct { // target.property, target[index]
		target, index node
	}
)

// An expressionError is an error of the language: the text between the quotes of
// ARM's message.
type expressionError string

func (e expressionError) Error() string { return string(e) }

func refuse(format string, args ...any) error {
	return expressionError(fmt.Sprintf(format, args...))
}

// isExpression: "[…]", but not "[[…]".
func isExpression(s string) bool {
	return strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") && !strings.HasPrefix(s, "[[")
}

// plainText takes the escape off a string that is no expression.
func plainText(s string) string {
	if strings.HasPrefix(s, "[[") && strings.HasSuffix(s, "]") {
		return s[1:]
	}
	return s
}

// parse reads an expression with its brackets, and looks up the functions, parameters
// and variables that it names.
func (m *model) parse(source string) (node, error) {
	p := &parser{model: m, source: source, text: source[1 : len(source)-1]}
	n, err := p.expression(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(p.text) {
		return nil, p.refuse()
	}
	return n, nil
}

type parser struct {
	*model
	source, text string
	at           int
}

func (p *parser) refuse() error {
	found := "the end"
	if p.at < len(p.text) {
		r, _ := utf8.DecodeRuneInString(p.text[p.at:])
		found = string(r)
	}
	return refuse("The language expression '%s' is not valid: unexpected %s at position %d. Please see https://aka.ms/arm-template-expressions for usage details.", p.source[1:len(p.source)-1], found, p.at)
}

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// next skips white space and takes c if it is next.
func (p *parser) next(c byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) identifier() string {
	p.space()
	start := p.at
	for p.at < len(p.text) && p.text[p.at] != '$' && nameByte(p.text[p.at]) {
		p.at++
	}
	return p.text[start:p.at]
}

func (p *parser) expression(depth int) (node, error) {
	if depth > maxNesting {
		return nil, refuse("The language expression '%s' is nested too deeply.", p.source)
	}
	n, err := p.primary(depth)
	for err == nil {
		switch {
		case p.next('.'):
			name := p.identifier()
			if name == "" {
				return nil, p.refuse()
			}
			n = access{n, literal{name}}
		case p.next('['):
			var index node
			if index, err = p.expression(depth + 1); err != nil {
				return nil, err
			}
			if !p.next(']') {
				return nil, p.refuse()
			}
			n = access{n, index}
		default:
			return n, nil
		}
	}
	return nil, err
}

func (p *parser) primary(depth int) (node, error) {
	if p.next('\'') {
		return p.quoted()
	}
	start := p.at
	sign := p.next('-')
	token := p.identifier()
	switch {
	case token == "":
		return nil, p.refuse()
	case sign || '0' <= token[0] && token[0] <= '9':
		if sign {
			token = "-" + token
		}
		n, err := strconv.ParseInt(token, 10, 64)
		if err != nil {
			p.at = start
			return nil, p.refuse()
		}
		return literal{n}, nil
	case !p.next('('):
		return nil, p.refuse()
	}
	c := call{name: token}
	for more := !p.next(')'); more; more = !p.next(')') {
		if len(c.args) > 0 && !p.next(',') {
			return nil, p.refuse()
		}
		arg, err := p.expression(depth + 1)
		if err != nil {
			return nil, err
		}
		c.args = append(c.args, arg)
	}
	return p.known(c)
}

// known finds a call's function, and the parameter or variable that it names.
func (p *parser) known(c call) (node, error) {
	name := strings.ToLower(c.name)
	f, ok := p.functions[name]
	if !ok && strings.HasPrefix(name, "list") {
		f, ok = function{2, 3, list}, true
	}
	if !ok {
		return nil, refuse("The template function '%s' is not valid, or azsim does not have it. Please see https://aka.ms/arm-functions for usage details.", c.name)
	}
	if n := len(c.args); n < f.min || f.max >= 0 && n > f.max {
		return nil, refuse("Unable to evaluate template language function '%s': function requires %s argument(s) while '%d' were provided. Please see https://aka.ms/arm-functions/#%s for usage details.", c.name, f.arity(), n, name)
	}
	c.function = f
	if named := map[string]map[string]*lazy{"parameters": p.parameters, "variables": p.variables}[name]; named != nil {
		if text, ok := c.args[0].(literal); ok {
			a := &arguments{name: c.name, values: []any{text.value}}
			a.lookup(named)
			return c, a.err
		}
	}
	return c, nil
}

// quoted reads the rest of a string literal; ” is a quote.
func (p *parser) quoted() (node, error) {
	var out strings.Builder
	for {
		end := strings.IndexByte(p.text[p.at:], '\'')
		if end < 0 {
			p.at = len(p.text)
			return nil, p.refuse()
		}
		out.WriteString(p.text[p.at : p.at+end])
		p.at += end + 1
		if p.at >= len(p.text) || p.text[p.at] != '\'' {
			return literal{out.String()}, nil
		}
		out.WriteByte('\'')
		p.at++
	}
}
