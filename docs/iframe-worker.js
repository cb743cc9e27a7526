// Search of the built site without a server.
//
// Browsers start no Worker for a page of file:. There it becomes an iframe, which runs
// the same script. Elsewhere nothing changes. The offline plugin of mkdocs-material
// would load such a script from the network; it leaves it out because of this file's
// name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      window.addEventListener("message", (event) => {
        if (event.source === inside)
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      const answer = "postMessage = (data) => parent.postMessage(data, '*')";
      inside.document.open();
      inside.document.write(
        `<script>${answer}</` + `script><script src="${url}"></` + "script>",
      );
      inside.document.close();
      this.ready = new Promise((resolve) => (inside.onload = resolve));
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
