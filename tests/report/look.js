// What is wrong with the page that this is put into, a line each, as the whole text of its document. For tests/report/boot-report.
(() => {
  const faults = [], seen = {svgs: 0, boxes: 0, words: 0, tables: 0};
  const name = (element) => `${element.tagName} "${element.textContent.slice(0, 40)}"`;
  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;

  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect(), title = svg.getAttribute("aria-label");
    const words = [...svg.querySelectorAll("text")].map((word) => ({name: name(word), box: word.getBoundingClientRect()}));
    let boxes = 0;
    seen.svgs++;
    seen.words += words.length;
    if (!(frame.width > 300 && frame.height > 30)) faults.push(`${title}: it is ${frame.width} × ${frame.height}`);
    for (const rect of svg.querySelectorAll("rect")) {
      const box = rect.getBoundingClientRect(), filled = getComputedStyle(rect).fill;
      if (box.width > 0 && box.height > 0) boxes++;
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        faults.push(`${title}: a box of class ${rect.getAttribute("class")} is outside`);
      if (filled === "rgb(0, 0, 0)") faults.push(`${title}: class ${rect.getAttribute("class")} has no colour`);
    }
    seen.boxes += boxes;
    if (boxes < 3) faults.push(`${title}: ${boxes} boxes`);
    words.forEach((word, i) => {
      if (word.box.left < frame.left - 1 || word.box.right > frame.right + 1 || word.box.top < frame.top - 1 || word.box.bottom > frame.bottom + 2)
        faults.push(`${title}: ${word.name} is outside`);
      for (const other of words.slice(i + 1))
        if (overlap(word.box, other.box)) faults.push(`${title}: ${word.name} lies on ${other.name}`);
    });
  }
  for (const tile of document.querySelectorAll(".tile")) if (tile.scrollWidth > tile.clientWidth + 1) faults.push(`${name(tile)} overflows`);
  for (const table of document.querySelectorAll("table")) {
    seen.tables++;
    if (table.getBoundingClientRect().right > document.documentElement.clientWidth) faults.push(`${name(table)} is too wide`);
  }
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth + 1) faults.push("the page is wider than its window");
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const background = getComputedStyle(document.body).backgroundColor;
  const report = document.createElement("pre");
  report.textContent = [`seen: ${seen.svgs} svgs ${seen.boxes} boxes ${seen.words} words ${seen.tables} tables`, `${scheme}: ${background}`,
    ...faults.map((fault) => `fault: ${fault}`), "looked"].join("\n");
  document.documentElement.replaceChildren(report);
})();
