// Tests in a real browser of the pages that Ortet writes. It is a module of its
// own, so that nothing that imports Ortet depends on a browser's protocol; it
// imports nothing of Ortet's, but has its tests write the pages.
module github.com/ortet/ortet/test/browser

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.2
	github.com/chromedp/chromedp v0.23.0
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
