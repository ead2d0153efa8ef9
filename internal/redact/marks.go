package redact

// marks finds many short words in one pass over a text, whatever the case of their
// ASCII letters (Aho and Corasick's automaton, as one dense table).
type marks struct {
	class [256]uint8 // of a byte; 0 for those in no word
	width int        // classes, rounded up to a power of two
	shift uint
	next  []uint16 // state<<shift | class to state
	word  []int16  // of a state: the word that ends in it, else -1
	also  []uint16 // of a state: the next shorter one in which a word ends, 0 for none
	size  []uint8  // of a word, its length
}

// newMarks prepares a search for words: lower case, at most 255 bytes each.
func newMarks(words []string) *marks {
	m := &marks{width: 1}
	classes, states := 1, 1
	for _, w := range words {
		for i := 0; i < len(w); i++ {
			if m.class[w[i]] == 0 {
				m.class[w[i]] = uint8(classes)
				classes++
			}
		}
		states += len(w)
		m.size = append(m.size, uint8(len(w)))
	}
	for c := byte('A'); c <= 'Z'; c++ {
		m.class[c] = m.class[c|0x20]
	}
	for m.width < classes {
		m.width <<= 1
		m.shift++
	}
	m.next, m.word, m.also = make([]uint16, states<<m.shift), make([]int16, states), make([]uint16, states)
	for i := range m.word {
		m.word[i] = -1
	}
	used := 1
	for n, w := range words {
		at := 0
		for i := 0; i < len(w); i++ {
			edge := &m.next[at<<m.shift|int(m.class[w[i]])]
			if *edge == 0 {
				*edge = uint16(used)
				used++
			}
			at = int(*edge)
		}
		m.word[at] = int16(n)
	}
	m.link(used)
	m.next = m.next[:used<<m.shift]
	return m
}

// link completes the trie to an automaton, breadth first.
func (m *marks) link(used int) {
	fail := make([]uint16, used)
	queue := make([]uint16, 0, used)
	for c := range m.width {
		if to := m.next[c]; to != 0 {
			queue = append(queue, to)
		}
	}
	for len(queue) > 0 {
		at := int(queue[0])
		queue = queue[1:]
		back := int(fail[at])
		if m.also[at] = uint16(back); m.word[back] < 0 {
			m.also[at] = m.also[back]
		}
		for c := range m.width {
			edge := &m.next[at<<m.shift|c]
			other := m.next[back<<m.shift|c]
			if *edge == 0 {
				*edge = other
				continue
			}
			fail[*edge] = other
			queue = append(queue, *edge)
		}
	}
}

// each calls visit for every word in data, by where the word ends; of words that end
// at the same place the longest comes first.
func (m *marks) each(data []byte, visit func(word, from, to int)) {
	next, shift := m.next, m.shift
	at := 0
	for i, b := range data {
		at = int(next[at<<shift|int(m.class[b])])
		if at == 0 || m.word[at] < 0 && m.also[at] == 0 {
			continue
		}
		for end := at; ; {
			if w := m.word[end]; w >= 0 {
				visit(int(w), i+1-int(m.size[w]), i+1)
			}
			if end = int(m.also[end]); end == 0 {
				break
			}
		}
	}
}
