package e2e

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/timeoutcenter/toc/client"
	"github.com/timeoutcenter/toc/server/console/e2e/browser"
)

var (
	update = flag.Bool("update", false, "TestScreenshots writes docs/images/console-*.png")
	busy   = flag.Duration("busy", 5*time.Minute, "how long the center has worked when its pictures are taken: charts are of minutes")
)

const images = "../../../docs/images"

// maxPicture is how large a picture of the docs may be, in bytes.
const maxPicture = 150_000

// The docs have a picture of each page, of a decent size. With -update they are taken again.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	names := []string{"overview-dark", "overview-phone", "login"}
	for _, p := range new(story).pages() {
		names = append(names, p.name)
	}
	if *update {
		takeScreenshots(t)
	}
	for _, name := range names {
		file, err := os.ReadFile(filepath.Join(images, "console-"+name+".png"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(file), maxPicture, name)
		_, err = png.DecodeConfig(bytes.NewReader(file))
		require.NoError(t, err, name)
	}
}

func takeScreenshots(t *testing.T) {
	s := begin(t)
	s.work(t, *busy)
	for name, view := range map[string]browser.View{"overview": {}, "overview-dark": {Dark: true}, "overview-phone": {Phone: true}} {
		tab := s.open(t, view)
		tab.Go("/console/")
		save(t, name, tab)
	}
	s.startReport(t)
	_, err := s.api.RedriveDead(t.Context(), client.RedriveDead{BizType: mails, Error: "no such customer", Rate: 0.1})
	require.NoError(t, err)
	out := browser.Open(t, s.url, browser.View{})
	out.Go("/console/login")
	save(t, "login", out)
	tab := s.open(t, browser.View{})
	for _, p := range s.pages()[1:] {
		tab.Go(p.path)
		save(t, p.name, tab)
	}
}

// work has orders fall due, now more of them and now fewer, and stays until they have run.
func (s *story) work(t *testing.T, long time.Duration) {
	t.Helper()
	for began := time.Now(); time.Since(began) < long; time.Sleep(time.Second) { // real time: the pictures show load of minutes
		var batch []client.Submit
		for i := range 20 + int(15*math.Sin(time.Since(began).Seconds()/20)) {
			batch = append(batch, client.Submit{BizType: orders, BizID: uint64(9000 + i), Delay: time.Second + time.Duration(i)*37*time.Millisecond})
		}
		_, err := s.api.SubmitBatch(t.Context(), batch)
		require.NoError(t, err)
	}
}

func save(t *testing.T, name string, tab *browser.Tab) {
	t.Helper()
	shot, err := png.Decode(bytes.NewReader(tab.Screenshot(true)))
	require.NoError(t, err)
	if shot.Bounds().Dx() > 1000 { // a phone's picture may be as long as it is
		shot = top(shot, 960)
	}
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, paletted(shot)))
	require.LessOrEqual(t, out.Len(), maxPicture, name)
	require.NoError(t, os.WriteFile(filepath.Join(images, "console-"+name+".png"), out.Bytes(), 0o644))
}

// top is the upper part of a picture, of so many lines at most.
func top(shot image.Image, lines int) image.Image {
	part := shot.Bounds()
	part.Max.Y = min(part.Max.Y, part.Min.Y+lines)
	return shot.(interface {
		SubImage(image.Rectangle) image.Image
	}).SubImage(part)
}

// paletted brings a picture down to 256 colours: pages have few, but for the edges of their letters.
func paletted(from image.Image) image.Image {
	bounds := from.Bounds()
	count := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[color.RGBAModel.Convert(from.At(x, y)).(color.RGBA)]++
		}
	}
	to := image.NewPaletted(bounds, distinct(count, 256))
	nearest := map[color.RGBA]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := color.RGBAModel.Convert(from.At(x, y)).(color.RGBA)
			i, ok := nearest[c]
			if !ok {
				i = uint8(to.Palette.Index(c))
				nearest[c] = i
			}
			to.SetColorIndex(x, y, i)
		}
	}
	return to
}

// alike is the difference, summed over red, green and blue, up to which two colours count as one.
const alike = 24

// distinct are the most frequent colours of those that are not alike.
func distinct(count map[color.RGBA]int, most int) color.Palette {
	var p color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) }) {
		if len(p) == most {
			break
		}
		if !slices.ContainsFunc(p, func(chosen color.Color) bool { return difference(c, chosen.(color.RGBA)) <= alike }) || count[c] > 500 {
			p = append(p, c)
		}
	}
	return p
}

func difference(a, b color.RGBA) int {
	apart := func(x, y uint8) int { return max(int(x), int(y)) - min(int(x), int(y)) }
	return apart(a.R, b.R) + apart(a.G, b.G) + apart(a.B, b.B)
}
